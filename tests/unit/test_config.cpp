// Configuration by the environment and from code. It is read once in a process, so each case here starts this program anew
// with an environment of its own and a hidden test case to run.
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "register_test.h"

using namespace test;

extern char **environ;

namespace {

using Environment = std::map<std::string, std::string>;

struct Child {
  int status;
  std::vector<std::string> log;  // what the library wrote to stderr
};

std::string read_all(int fd) {
  std::string all;
  char part[4096];
  for (ssize_t n; (n = read(fd, part, sizeof(part))) > 0;) all.append(part, static_cast<size_t>(n));
  return all;
}

// Runs one hidden test case. An empty value takes a variable away.
Child run(const std::string &test_case, const Environment &changes = {}) {
  Environment all;
  for (char **e = environ; *e; ++e) {
    const std::string entry = *e;
    all[entry.substr(0, entry.find('='))] = entry.substr(entry.find('=') + 1);
  }
  for (const auto &[name, value] : changes) all[name] = value;
  std::vector<std::string> texts;
  for (const auto &[name, value] : all)
    if (!value.empty()) texts.push_back(name + "=" + value);
  std::vector<char *> env;
  for (auto &t : texts) env.push_back(t.data());
  env.push_back(nullptr);

  int ends[2];
  REQUIRE(pipe(ends) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  std::string name = test_case;
  std::string path = std::filesystem::read_symlink("/proc/self/exe");
  char *arguments[] = {path.data(), name.data(), nullptr};
  pid_t pid = 0;
  REQUIRE(posix_spawn(&pid, path.c_str(), &actions, nullptr, arguments, env.data()) == 0);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  Child child{};
  const std::string text = read_all(ends[0]);
  close(ends[0]);
  REQUIRE(waitpid(pid, &child.status, 0) == pid);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    if (line.rfind("hostpin: ", 0) == 0) child.log.push_back(line);
    at = end + 1;
  }
  INFO(text);
  CHECK(child.status == 0);
  CHECK(contains(text, "in 1 test case"));  // and not none at all
  return child;
}

hp_config config() {
  hp_config c{};
  c.struct_size = sizeof(c);
  return c;
}

std::string pages(size_t n) { return std::to_string(n * page()); }

uint64_t physical_memory() { return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * page(); }

}  // namespace

// ---- Hidden: what is run in a process of its own

TEST_CASE("child: defaults", "[.]") {
  const Memory memory(page());
  CHECK(backend().backend == HP_BACKEND_CUDA);
  const uint64_t limit = backend().max_segment;
  CHECK((limit == 64 * kGiB || limit == kGiB));  // less on kernels that are known to refuse more
  REQUIRE(hp_register(memory.at(), page(), 0) == HP_OK);
  CHECK(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("child: four pages may be pinned", "[.]") {
  if (std::getenv("TEST_FROM_CODE")) {
    hp_config c = config();
    c.budget_bytes = 4 * page();
    REQUIRE(hp_configure(&c) == HP_OK);
  }
  const Memory memory(16 * page());
  REQUIRE(hp_register(memory.at(), 2 * page(), 0) == HP_OK);
  REQUIRE(hp_register(memory.page_at(4), page(), 0) == HP_OK);
  const uint64_t calls = hps_calls("*");
  const hp_stats before = stats();
  for (uint32_t flags : {0u, HP_REGISTER_REQUIRED}) {
    CHECK(hp_register(memory.page_at(8), 2 * page(), flags) == HP_E_BUDGET);
    CHECK(contains(hp_last_error(), "budget"));
    CHECK(contains(hp_last_error(), pages(2)));  // wanted
    CHECK(contains(hp_last_error(), pages(3)));  // pinned
    CHECK(contains(hp_last_error(), pages(4)));  // allowed
    CHECK(hp_register(memory.at(1), 16 * page() - 1, flags) == HP_E_BUDGET);
  }
  CHECK(hps_calls("*") == calls);
  CHECK(stats().pageable_bytes == 0);
  CHECK(stats().registrations == before.registrations);
  CHECK(hp_unregister(memory.page_at(8)) == HP_E_NOT_FOUND);
  // Pages that are pinned already cost nothing; what is released is free again.
  CHECK(hp_register(memory.at(5), page(), 0) == HP_OK);
  CHECK(hp_register(memory.page_at(1), 2 * page(), 0) == HP_OK);
  CHECK(stats().pinned_bytes == 4 * page());
  CHECK(hp_register(memory.page_at(8), 1, 0) == HP_E_BUDGET);
  CHECK(hp_unregister(memory.page_at(4)) == HP_OK);
  CHECK(hp_register(memory.page_at(8), 1, 0) == HP_OK);
  for (void *base : {memory.at(), memory.at(5), memory.page_at(1), memory.page_at(8)}) CHECK(hp_unregister(base) == HP_OK);
}

TEST_CASE("child: one percent may be pinned", "[.]") {
  if (std::getenv("TEST_FROM_CODE")) {
    hp_config c = config();
    c.budget_percent = 1;
    REQUIRE(hp_configure(&c) == HP_OK);
  }
  const size_t more = static_cast<size_t>(physical_memory() / 100 + page());
  const Memory memory(more, PROT_NONE);
  CHECK(hp_register(memory.at(), more, 0) == HP_E_BUDGET);
  CHECK(hp_register(memory.at(), page(), 0) == HP_OK);
  CHECK(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("child: half of the memory may be pinned", "[.]") {
  const size_t more = static_cast<size_t>(physical_memory() / 2 + page());
  const Memory memory(more, PROT_NONE);
  CHECK(hp_register(memory.at(), more, 0) == HP_E_BUDGET);
  CHECK(hp_register(memory.at(), page(), 0) == HP_OK);
  CHECK(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("child: segments of two pages", "[.]") {
  if (std::getenv("TEST_FROM_CODE")) {
    hp_config c = config();
    c.max_segment = 3 * page() - 1;
    REQUIRE(hp_configure(&c) == HP_OK);
  }
  const Memory memory(16 * page());
  CHECK(backend().max_segment == 2 * page());
  REQUIRE(hp_register(memory.at(page() + 1), 4 * page(), 0) == HP_OK);
  const auto all = pinned_by_driver();
  REQUIRE(all.size() == 3);
  CHECK(all[0].ptr == memory.page_at(1));
  CHECK(all[0].length == 2 * page());
  CHECK(all[1].ptr == memory.page_at(3));
  CHECK(all[1].length == 2 * page());
  CHECK(all[2].ptr == memory.page_at(5));
  CHECK(all[2].length == page());
  CHECK(region(memory.at(3 * page() - 1), 1).one_segment == 1);
  CHECK(region(memory.at(3 * page() - 1), 2).one_segment == 0);
  CHECK(hp_unregister(memory.at(page() + 1)) == HP_OK);
}

TEST_CASE("child: segments as TEST_EXPECTED says", "[.]") {
  CHECK(backend().max_segment == std::strtoull(std::getenv("TEST_EXPECTED"), nullptr, 10));
}

TEST_CASE("child: twelve calls at most", "[.]") {
  const Memory memory(4096 * kGiB, PROT_READ | PROT_WRITE);
  script("fail=register:*:2");
  CHECK(hp_register(memory.at(), memory.size(), HP_REGISTER_REQUIRED) == HP_E_REFUSED);
  CHECK(hps_calls("register") == 12);
}

TEST_CASE("child: backend none", "[.]") {
  if (std::getenv("TEST_FROM_CODE")) {
    hp_config c = config();
    c.backend = HP_BACKEND_NONE;
    REQUIRE(hp_configure(&c) == HP_OK);
  }
  const Memory memory(page());
  const hp_backend_info info = backend();
  CHECK(info.backend == HP_BACKEND_NONE);
  CHECK(info.name == std::string_view("none"));
  CHECK(info.runtime_file == std::string_view(""));
  CHECK(info.device_count == 0);
  CHECK(info.capabilities == 0);
  for (const char *reason : {info.cuda_reason, info.hip_reason, info.level_zero_reason})
    CHECK(contains(reason, "configuration"));
  CHECK(hp_register(memory.at(), page(), HP_REGISTER_REQUIRED) == HP_E_UNAVAILABLE);
  CHECK(contains(hp_last_error(), "configuration"));
  CHECK(hp_unregister(memory.at()) == HP_E_NOT_FOUND);
  for (int i = 0; i < 3; ++i) CHECK(hp_register(memory.at(), page(), 0) == HP_PAGEABLE);
  CHECK(stats().pageable_bytes == page());
  for (int i = 0; i < 3; ++i) CHECK(hp_unregister(memory.at()) == HP_OK);
  CHECK(hp_unregister(memory.at()) == HP_E_NOT_FOUND);
  CHECK(hps_calls("*") == 0);
}

TEST_CASE("child: more records than are kept", "[.]") {
  constexpr size_t kKept = 65536;
  constexpr size_t kMore = 100;
  char *const base = reinterpret_cast<char *>(uintptr_t{1} << 40);
  const auto record = [&](size_t i) { return base + i * 16; };
  for (size_t i = 0; i < kKept + kMore; ++i)
    if (hp_register(record(i), 3, 0) != HP_PAGEABLE) FAIL(i);
  CHECK(stats().pageable_bytes == 3 * kKept);
  for (size_t i = 0; i < kMore; ++i)
    if (hp_unregister(record(i)) != HP_E_NOT_FOUND) FAIL("the old record " << i << " is still there");
  // A record that is asked for again is new again.
  REQUIRE(hp_register(record(kMore), 3, 0) == HP_PAGEABLE);
  REQUIRE(hp_register(record(0), 3, 0) == HP_PAGEABLE);
  CHECK(stats().pageable_bytes == 3 * kKept);
  CHECK(hp_unregister(record(kMore + 1)) == HP_E_NOT_FOUND);
  CHECK(hp_unregister(record(kMore)) == HP_OK);
  CHECK(hp_unregister(record(0)) == HP_OK);
  for (size_t i = kMore + 2; i < kKept + kMore; ++i)
    if (hp_unregister(record(i)) != HP_OK) FAIL("the record " << i << " is lost");
  CHECK(hp_unregister(record(kMore)) == HP_OK);  // the second time that it was registered
  CHECK(stats().pageable_bytes == 0);
}

TEST_CASE("child: backend hip", "[.]") {
  if (std::getenv("TEST_FROM_CODE")) {
    hp_config c = config();
    c.backend = HP_BACKEND_HIP;
    REQUIRE(hp_configure(&c) == HP_OK);
  }
  CHECK(backend().backend == HP_BACKEND_HIP);
  CHECK(contains(backend().cuda_reason, "configuration"));
}

TEST_CASE("child: refused once and stuck once", "[.]") {
  if (const char *level = std::getenv("TEST_FROM_CODE")) {
    hp_config c = config();
    c.log_level = std::atoi(level);
    REQUIRE(hp_configure(&c) == HP_OK);
  }
  const Memory memory(4 * page());
  backend();
  fail_next("register", 801);
  REQUIRE(hp_register(memory.at(), page(), 0) == HP_PAGEABLE);
  REQUIRE(hp_register(memory.page_at(2), page(), 0) == HP_OK);
  fail_next("unregister", 1);
  REQUIRE(hp_unregister(memory.page_at(2)) == HP_E_STUCK);
  REQUIRE(hp_unregister(memory.page_at(2)) == HP_OK);
}

TEST_CASE("child: the file is copied", "[.]") {
  std::string file = std::getenv("TEST_FILE");
  hp_config c = config();
  (std::getenv("TEST_DRIVER") ? c.cuda_driver : c.cudart) = file.c_str();
  REQUIRE(hp_configure(&c) == HP_OK);
  std::fill(file.begin(), file.end(), 'x');
  CHECK(backend().backend == HP_BACKEND_CUDA);
  CHECK(backend().runtime_file == std::string_view(std::getenv("TEST_FILE")));
}

TEST_CASE("child: the last configuration before the first use counts", "[.]") {
  hp_config c = config();
  c.max_segment = page();
  c.cudart = "/nowhere/libcudart.so.12";
  REQUIRE(hp_configure(&c) == HP_OK);
  c = config();
  c.max_segment = 2 * page();
  REQUIRE(hp_configure(&c) == HP_OK);
  // A wrong one changes nothing.
  c.max_segment = 5 * page();
  c.budget_percent = 101;
  REQUIRE(hp_configure(&c) == HP_E_INVALID);
  // Asking what is pinned is no use of the configuration yet.
  int here = 0;
  CHECK(hp_query(&here, sizeof(here), nullptr) == HP_PAGEABLE);
  CHECK(stats().registrations == 0);
  CHECK(hp_unregister(&here) == HP_E_NOT_FOUND);
  c = config();
  c.max_segment = 3 * page();
  REQUIRE(hp_configure(&c) == HP_OK);
  CHECK(backend().max_segment == 3 * page());
  c.max_segment = 4 * page();
  CHECK(hp_configure(&c) == HP_E_INVALID);
  CHECK(contains(hp_last_error(), "too late"));
  CHECK(backend().max_segment == 3 * page());
}

TEST_CASE("child: values out of range", "[.]") {
  struct Case {
    const char *name;
    const char *value;
    void (*set)(hp_config &);
  };
  const Case cases[] = {
      {"struct_size", "8", [](hp_config &c) { c.struct_size = 8; }},
      {"backend", "-1", [](hp_config &c) { c.backend = -1; }},
      {"backend", "5", [](hp_config &c) { c.backend = 5; }},
      {"log_level", "6", [](hp_config &c) { c.log_level = 6; }},
      {"log_level", "-1", [](hp_config &c) { c.log_level = -1; }},
      {"ze_memmap", "2", [](hp_config &c) { c.ze_memmap = 2; }},
      {"max_segment", "4095", [](hp_config &c) { c.max_segment = 4095; }},
      {"max_segment", "1", [](hp_config &c) { c.max_segment = 1; }},
      {"budget_percent", "101", [](hp_config &c) { c.budget_percent = 101; }},
      {"budget_percent", "both", [](hp_config &c) { c.budget_percent = 1, c.budget_bytes = 1; }},
      {"reserved", "zero", [](hp_config &c) { c.reserved[0] = 1; }},
      {"reserved", "zero", [](hp_config &c) { c.reserved[7] = 1; }},
  };
  for (const Case &c : cases) {
    CAPTURE(c.name, c.value);
    hp_config bad = config();
    bad.cudart = "/nowhere/libcudart.so.12";
    c.set(bad);
    CHECK(hp_configure(&bad) == HP_E_INVALID);
    CHECK(contains(hp_last_error(), "hp_configure"));
    CHECK(contains(hp_last_error(), c.name));
    CHECK(contains(hp_last_error(), c.value));
  }
  CHECK(backend().backend == HP_BACKEND_CUDA);  // nothing of the bad ones was taken
}

TEST_CASE("child: the program says otherwise", "[.]") {
  hp_config c = config();
  c.backend = HP_BACKEND_NONE;
  c.max_segment = page();
  c.budget_percent = 1;
  c.log_level = HP_LOG_OFF;
  c.cudart = "/nowhere/libcudart.so.12";
  REQUIRE(hp_configure(&c) == HP_OK);
  CHECK(backend().backend == HP_BACKEND_CUDA);
  CHECK(backend().max_segment == 1 << 20);
  const size_t more = static_cast<size_t>(physical_memory() / 100 + page());
  const Memory memory(more, PROT_NONE);
  CHECK(hp_register(memory.at(), more, 0) == HP_OK);
  CHECK(hp_unregister(memory.at()) == HP_OK);
}

// ---- The cases themselves

TEST_CASE("defaults, and nothing is said") { CHECK(run("child: defaults").log.empty()); }

TEST_CASE("a budget in bytes") {
  CHECK(run("child: four pages may be pinned", {{"HOSTPIN_BUDGET", pages(4)}}).log.empty());
  run("child: four pages may be pinned", {{"HOSTPIN_BUDGET", std::to_string(4 * page() / 1024) + "K"}});
  run("child: four pages may be pinned", {{"TEST_FROM_CODE", "1"}});
  run("child: one percent may be pinned", {{"HOSTPIN_BUDGET", "1%"}});
  run("child: one percent may be pinned", {{"TEST_FROM_CODE", "1"}});
  run("child: half of the memory may be pinned", {{"HOSTPIN_BUDGET", "50%"}});
}

TEST_CASE("the environment is stronger than the program") {
  run("child: the program says otherwise", {{"HOSTPIN_BACKEND", "cuda"}, {"HOSTPIN_MAX_SEGMENT", "1M"}, {"HOSTPIN_BUDGET", "1T"},
                                            {"HOSTPIN_LOG", "warn"}});
}

TEST_CASE("the longest segment") {
  run("child: segments of two pages", {{"HOSTPIN_MAX_SEGMENT", pages(2)}});
  run("child: segments of two pages", {{"HOSTPIN_MAX_SEGMENT", std::to_string(3 * page() - 1)}});
  run("child: segments of two pages", {{"TEST_FROM_CODE", "1"}});
  const std::map<std::string, uint64_t> sizes = {{"1M", 1 << 20}, {"64k", 64 << 10}, {"3G", 3 * kGiB}, {"2T", 2048 * kGiB}};
  for (const auto &[text, bytes] : sizes)
    CHECK(run("child: segments as TEST_EXPECTED says", {{"HOSTPIN_MAX_SEGMENT", text}, {"TEST_EXPECTED", std::to_string(bytes)}})
              .log.empty());
  run("child: twelve calls at most", {{"HOSTPIN_MAX_SEGMENT", "4T"}});
}

TEST_CASE("the backend") {
  const std::string hip = std::string(SIM_AMDHIP);
  const Child none = run("child: backend none", {{"HOSTPIN_BACKEND", "none"}});
  REQUIRE(none.log.size() == 1);  // three registrations
  CHECK(contains(none.log[0], "pageable"));
  CHECK(run("child: backend none", {{"TEST_FROM_CODE", "1"}}).log.size() == 1);
  run("child: backend hip", {{"HOSTPIN_BACKEND", "hip"}, {"HOSTPIN_AMDHIP", hip}});
  run("child: backend hip", {{"TEST_FROM_CODE", "1"}, {"HOSTPIN_AMDHIP", hip}});
  run("child: backend hip", {{"HOSTPIN_AMDHIP", hip}, {"HOSTPIN_CUDART", ""}, {"HOSTPIN_BACKEND", "hip"}});
  run("child: defaults", {{"HOSTPIN_BACKEND", "auto"}, {"HOSTPIN_AMDHIP", hip}});
  run("child: defaults", {{"HOSTPIN_BACKEND", "cuda"}, {"HOSTPIN_AMDHIP", hip}});
}

TEST_CASE("log levels") {
  const auto lines = [](const Environment &e) {
    const auto log = run("child: refused once and stuck once", e).log;
    const auto level = [&](const char *name) {
      return static_cast<size_t>(std::count_if(log.begin(), log.end(), [&](const std::string &l) {
        return l.rfind(std::string("hostpin: ") + name + ": ", 0) == 0;
      }));
    };
    CHECK(level("error") + level("warning") + level("info") + level("debug") == log.size());
    return std::vector<size_t>{level("error"), level("warning"), level("info")};
  };
  using Counts = std::vector<size_t>;
  CHECK(lines({}) == Counts{1, 1, 0});
  CHECK(lines({{"HOSTPIN_LOG", "off"}}) == Counts{0, 0, 0});
  CHECK(lines({{"HOSTPIN_LOG", "error"}}) == Counts{1, 0, 0});
  CHECK(lines({{"HOSTPIN_LOG", "warn"}}) == Counts{1, 1, 0});
  CHECK(lines({{"HOSTPIN_LOG", "info"}}) == Counts{1, 1, 1});
  CHECK(lines({{"HOSTPIN_LOG", "debug"}})[2] >= 1);
  for (int level : {HP_LOG_OFF, HP_LOG_ERROR, HP_LOG_WARN, HP_LOG_INFO}) {
    const auto n = static_cast<size_t>(level - HP_LOG_OFF);
    CHECK(lines({{"TEST_FROM_CODE", std::to_string(level)}}) == Counts{n > 0, n > 1, n > 2});
  }
  CHECK(lines({{"TEST_FROM_CODE", "5"}, {"HOSTPIN_LOG", "off"}}) == Counts{0, 0, 0});
}

TEST_CASE("each bad value is one warning that names it, and the default") {
  const std::vector<std::pair<std::string, std::vector<std::string>>> bad = {
      {"HOSTPIN_LOG", {"loud", "WARN", "1"}},
      {"HOSTPIN_BACKEND", {"rocm", "CUDA", "2"}},
      {"HOSTPIN_MAX_SEGMENT", {"0", "1", "4095", "1Q", "-1", "64 G", "0x1000", "1KK", "99999999999T", "G"}},
      {"HOSTPIN_BUDGET", {"0", "0%", "101%", "-5%", "5 %", "%", "many", "1.5G", "1000%", "+1"}},
      {"HOSTPIN_ZE_MEMMAP", {"yes", "2"}},
  };
  for (const auto &[variable, values] : bad)
    for (const std::string &value : values) {
      CAPTURE(variable, value);
      const Child child = run("child: defaults", {{variable, value}});
      REQUIRE(child.log.size() == 1);
      CHECK(contains(child.log[0], "warning"));
      CHECK(contains(child.log[0], variable + "=" + value));
    }
  // Several at once are several lines.
  CHECK(run("child: defaults", {{"HOSTPIN_BUDGET", "x"}, {"HOSTPIN_BACKEND", "y"}, {"HOSTPIN_MAX_SEGMENT", "z"}}).log.size() == 3);
  // An empty variable is as good as none.
  CHECK(run("child: defaults", {{"HOSTPIN_BUDGET", ""}}).log.empty());
}

TEST_CASE("files from code") {
  run("child: the file is copied", {{"HOSTPIN_CUDART", ""}, {"TEST_FILE", runtime_file()}});
  run("child: the file is copied", {{"HOSTPIN_CUDART", ""}, {"TEST_FILE", SIM_CUDA}, {"TEST_DRIVER", "1"}});
}

TEST_CASE("hp_configure counts before the first use") {
  run("child: the last configuration before the first use counts");
}

TEST_CASE("hp_configure refuses values out of range") { run("child: values out of range"); }

TEST_CASE("only the newest 65,536 records of pageable memory are kept") {
  CHECK(run("child: more records than are kept", {{"HOSTPIN_BACKEND", "none"}}).log.size() == 1);
}
