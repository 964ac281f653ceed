#include "config.h"

#include <hostpin.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "log.h"
#include "system.h"

namespace hp {

namespace {

constexpr unsigned kMaxPrefaultThreads = 64;

constinit Config *g_from_code = nullptr;

struct Name {
  const char *text;
  int32_t value;
};
constexpr Name kBackends[] = {{"auto", HP_BACKEND_AUTO}, {"none", HP_BACKEND_NONE}, {"cuda", HP_BACKEND_CUDA},
                              {"hip", HP_BACKEND_HIP},   {"level_zero", HP_BACKEND_LEVEL_ZERO}};
constexpr Name kLevels[] = {{"off", HP_LOG_OFF},   {"error", HP_LOG_ERROR}, {"warn", HP_LOG_WARN},
                            {"info", HP_LOG_INFO}, {"debug", HP_LOG_DEBUG}};

// The environment is read before the log level is known, so complaints wait here.
struct BadValue {
  const char *variable;
  const char *expected;
  char value[80];
};
constinit BadValue g_bad[12] = {};
constinit unsigned g_bad_count = 0;

void complain(const char *variable, const char *value, const char *expected) noexcept {
  if (g_bad_count == std::size(g_bad)) return;
  BadValue &bad = g_bad[g_bad_count++];
  bad.variable = variable;
  bad.expected = expected;
  std::strncpy(bad.value, value, sizeof(bad.value) - 1);
}

// Set and not empty; never in programs that run with more rights than their caller.
const char *environment(const char *variable) noexcept {
  const char *value = secure_getenv(variable);
  return value && *value ? value : nullptr;
}

template <size_t N>
void read_name(const char *variable, const Name (&names)[N], const char *expected, int32_t &out) noexcept {
  const char *value = environment(variable);
  if (!value) return;
  for (const Name &n : names)
    if (std::strcmp(value, n.text) == 0) {
      out = n.value;
      return;
    }
  complain(variable, value, expected);
}

void read_file(const char *variable, const char *&out) {
  const char *value = environment(variable);
  if (!value) return;
  char *copy = strdup(value);  // kept for ever: the environment may change
  if (!copy) throw std::bad_alloc();
  out = copy;
}

void read_max_segment(uint64_t &out) noexcept {
  const char *value = environment("HOSTPIN_MAX_SEGMENT");
  uint64_t bytes = 0;
  if (!value) return;
  if (parse_size(value, bytes) && bytes >= page_size())
    out = bytes;
  else
    complain("HOSTPIN_MAX_SEGMENT", value, "bytes, a page or more, also with K, M, G or T");
}

bool parse_percent(const char *text, unsigned &percent) noexcept {
  const size_t length = std::strlen(text);
  uint64_t value = 0;
  char digits[4] = "";
  if (length < 2 || length > 4 || text[length - 1] != '%') return false;
  std::memcpy(digits, text, length - 1);
  if (!std::all_of(digits, digits + length - 1, [](unsigned char c) { return std::isdigit(c); })) return false;
  value = std::strtoull(digits, nullptr, 10);
  percent = static_cast<unsigned>(value);
  return value >= 1 && value <= 100;
}

void read_budget(Config &out) noexcept {
  const char *value = environment("HOSTPIN_BUDGET");
  uint64_t bytes = 0;
  unsigned percent = 0;
  if (!value) return;
  if (parse_percent(value, percent)) {
    out.budget_percent = percent;
    out.budget_bytes = 0;
  } else if (parse_size(value, bytes) && bytes > 0) {
    out.budget_bytes = bytes;
    out.budget_percent = 0;
  } else {
    complain("HOSTPIN_BUDGET", value, "bytes, also with K, M, G or T, or 1% to 100%");
  }
}

void read_threads(unsigned &out) noexcept {
  const char *value = environment("HOSTPIN_PREFAULT_THREADS");
  uint64_t threads = 0;
  if (!value) return;
  if (parse_size(value, threads) && threads >= 1 && threads <= kMaxPrefaultThreads)
    out = static_cast<unsigned>(threads);
  else
    complain("HOSTPIN_PREFAULT_THREADS", value, "1 to 64");
}

void read_switch(const char *variable, bool &out) noexcept {
  const char *value = environment(variable);
  if (!value) return;
  if (std::strcmp(value, "0") == 0 || std::strcmp(value, "1") == 0)
    out = *value == '1';
  else
    complain(variable, value, "0 or 1");
}

struct FreeConfig {
  void operator()(Config *c) const noexcept {
    for (const char *file : {c->cudart, c->cuda_driver, c->amdhip, c->ze_loader}) std::free(const_cast<char *>(file));
    delete c;
  }
};

bool check(const hp_config &in, Report &report) noexcept {
  const bool reserved = std::any_of(std::begin(in.reserved), std::end(in.reserved), [](uint64_t r) { return r != 0; });
  if (in.struct_size != sizeof(in))
    report.text.add("hp_configure: struct_size is %u, this library knows %zu", in.struct_size, sizeof(in));
  else if (in.backend < HP_BACKEND_AUTO || in.backend > HP_BACKEND_LEVEL_ZERO)
    report.text.add("hp_configure: backend is %d, not one of HP_BACKEND_", in.backend);
  else if (in.log_level < 0 || in.log_level > HP_LOG_DEBUG)
    report.text.add("hp_configure: log_level is %d, not one of HP_LOG_", in.log_level);
  else if (in.ze_memmap > 1)
    report.text.add("hp_configure: ze_memmap is %u, not 0 or 1", in.ze_memmap);
  else if (in.max_segment && in.max_segment < page_size())
    report.text.add("hp_configure: max_segment is %llu bytes, less than a page",
                    static_cast<unsigned long long>(in.max_segment));
  else if (in.budget_percent > 100)
    report.text.add("hp_configure: budget_percent is %u, not 0 to 100", in.budget_percent);
  else if (in.budget_percent && in.budget_bytes)
    report.text.add("hp_configure: budget_bytes and budget_percent are both set");
  else if (in.prefault_threads > kMaxPrefaultThreads)
    report.text.add("hp_configure: prefault_threads is %u, not 0 to %u", in.prefault_threads, kMaxPrefaultThreads);
  else if (reserved)
    report.text.add("hp_configure: a reserved field is not zero");
  return report.text.empty();
}

}  // namespace

bool parse_size(const char *text, uint64_t &bytes) noexcept {
  if (!std::isdigit(static_cast<unsigned char>(*text))) return false;
  errno = 0;
  char *end = nullptr;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (errno) return false;
  static constexpr char kUnits[] = "KMGT";
  unsigned shift = 0;
  if (*end) {
    const char *unit = std::strchr(kUnits, std::toupper(static_cast<unsigned char>(*end)));
    if (!unit || end[1]) return false;
    shift = 10 * static_cast<unsigned>(unit - kUnits + 1);
  }
  bytes = static_cast<uint64_t>(value) << shift;
  return bytes >> shift == value;
}

int32_t configure(const hp_config &in, Report &report) {
  if (!check(in, report)) return HP_E_INVALID;
  std::unique_ptr<Config, FreeConfig> c(new Config);
  c->backend = in.backend;
  c->log_level = in.log_level;
  c->ze_memmap = in.ze_memmap != 0;
  c->max_segment = in.max_segment;
  c->budget_bytes = in.budget_bytes;
  c->budget_percent = in.budget_percent;
  c->prefault_threads = in.prefault_threads;
  const struct {
    const char *from;
    const char *&to;
  } files[] = {{in.cudart, c->cudart}, {in.cuda_driver, c->cuda_driver}, {in.amdhip, c->amdhip}, {in.ze_loader, c->ze_loader}};
  for (auto &f : files)
    if (f.from && *f.from && !(f.to = strdup(f.from))) return HP_E_NO_MEMORY;
  std::unique_ptr<Config, FreeConfig> old(std::exchange(g_from_code, c.release()));
  return HP_OK;
}

Config make_config() {
  Config c;
  if (g_from_code) c = *g_from_code;  // which stays: its texts are used
  read_name("HOSTPIN_LOG", kLevels, "off, error, warn, info or debug", c.log_level);
  read_name("HOSTPIN_BACKEND", kBackends, "auto, cuda, hip, level_zero or none", c.backend);
  read_file("HOSTPIN_CUDART", c.cudart);
  read_file("HOSTPIN_CUDA_DRIVER", c.cuda_driver);
  read_file("HOSTPIN_AMDHIP", c.amdhip);
  read_file("HOSTPIN_ZE_LOADER", c.ze_loader);
  read_switch("HOSTPIN_ZE_MEMMAP", c.ze_memmap);
  read_max_segment(c.max_segment);
  read_budget(c);
  read_threads(c.prefault_threads);
  if (c.log_level == 0) c.log_level = HP_LOG_WARN;
  if (c.budget_percent) c.budget_bytes = usable_memory() / 100 * c.budget_percent;
  return c;
}

void warn_of_bad_values() noexcept {
  for (unsigned i = 0; i < g_bad_count; ++i)
    log_line(HP_LOG_WARN, "%s=%s is not valid and was ignored; it takes %s", g_bad[i].variable, g_bad[i].value,
             g_bad[i].expected);
  g_bad_count = 0;
}

}  // namespace hp
