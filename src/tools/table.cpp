#include <algorithm>
#include <cstdio>
#include <string_view>

#include "report.h"
#include "words.h"

namespace info {

namespace {

// Rows of a name and a text, which goes on below itself where it is too long for the line.
class Table {
public:
  void section(std::string_view title) {
    if (!text_.empty()) text_ += '\n';
    text_.append(title) += '\n';
  }

  void row(std::string_view name, std::string_view value) {
    text_.append("  ").append(name).append(kIndent - 2 - name.size(), ' ');
    size_t column = kIndent;
    for (size_t at = 0; at < value.size();) {
      const size_t end = std::min(value.find(' ', at), value.size());
      add_word(value.substr(at, end - at), column);
      at = end + 1;
    }
    text_ += '\n';
  }

  std::string take() { return std::move(text_); }

private:
  static constexpr size_t kIndent = 18;
  static constexpr size_t kWidth = 80;

  // A word that is longer than the line stays whole: it may be a path that somebody wants to copy.
  void add_word(std::string_view word, size_t &column) {
    const auto width = static_cast<size_t>(std::count_if(word.begin(), word.end(), starts_character));
    if (column > kIndent && column + 1 + width > kWidth) {
      text_.append("\n").append(kIndent, ' ');
      column = kIndent;
    } else if (column > kIndent) {
      text_ += ' ';
      ++column;
    }
    for (const char c : word) text_ += is_control(c) ? '?' : c;
    column += width;
  }

  static bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }
  // Reasons quote file names, which must not steer the terminal.
  static bool is_control(char c) { return static_cast<unsigned char>(c) < 32 || c == 127; }

  std::string text_;
};

std::string limit_words(const std::optional<uint64_t> &bytes) { return bytes ? size_words(*bytes) : "unlimited"; }

std::string or_unknown(const std::string &text) { return text.empty() ? "unknown" : text; }

std::string backend_words(const hp_backend_info &b) {
  if (b.backend == HP_BACKEND_NONE) return "none: memory stays pageable; transfers are right, only slower";
  return b.name;
}

std::string capability_words(uint32_t bits) {
  std::string words;
  for (const Capability &c : kCapabilities)
    if (bits & c.bit) words += (words.empty() ? "" : "; ") + std::string(c.words);
  return words.empty() ? "pinned memory serves copies only" : words;
}

void add_backend(Table &t, const hp_backend_info &b) {
  t.section("Backend");
  t.row("in use", backend_words(b));
  if (b.backend == HP_BACKEND_NONE) return;
  t.row("devices", std::to_string(b.device_count));
  t.row("capabilities", capability_words(b.capabilities));
  t.row("segment limit", size_words(b.max_segment) + " in one driver call");
}

void add_runtimes(Table &t, const hp_backend_info &b) {
  t.section("Runtimes");
  for (const Candidate &c : kCandidates) {
    if (c.backend != b.backend) {
      t.row(c.name, std::string("passed over: ") + b.*c.reason);
      continue;
    }
    t.row(c.name, "in use, version " + or_unknown(version_words(c.backend, b.runtime_version)) + ", driver " +
                      or_unknown(version_words(c.backend, b.driver_version)));
    t.row("", b.runtime_file);
  }
}

std::string kernel_words(const SystemFacts &s) {
  if (!s.kernel_pin_limit) return s.kernel;
  return s.kernel + ": kernels 6.11 to 6.13 are known to refuse pins above 2 GiB in one driver call";
}

std::string memory_words(const SystemFacts &s) {
  if (!s.memory_usable) return "unknown";
  std::string words = size_words(*s.memory_usable) + " usable by this process";
  if (s.cgroup_limit) words += " (limit of its cgroup)";
  if (s.cgroup_limit && s.memory_total) words += ", the machine has " + size_words(*s.memory_total);
  if (s.memory_available) words += "; " + size_words(*s.memory_available) + " available now";
  return words;
}

std::string thp_words(const SystemFacts &s) {
  if (s.thp.empty()) return "the kernel has none";
  return s.thp + (s.thp_shmem.empty() ? "" : "; shared memory: " + s.thp_shmem);
}

std::string huge_page_words(const std::vector<HugePages> &pools) {
  std::string words;
  for (const HugePages &p : pools) {
    words += (words.empty() ? "" : "; ") + size_words(p.page_size) + ": ";
    words += p.total ? std::to_string(p.free) + " of " + std::to_string(p.total) + " free" : "none set aside";
  }
  return words.empty() ? "the kernel has none" : words;
}

void add_system(Table &t, const SystemFacts &s) {
  t.section("System");
  t.row("kernel", kernel_words(s));
  t.row("WSL", s.wsl ? "yes: far less than the machine's memory can be pinned here" : "no");
  t.row("memory", memory_words(s));
  t.row("pin budget", s.budget ? size_words(*s.budget) + " (HOSTPIN_BUDGET)" : "none");
  t.row("locked memory", limit_words(s.memlock_soft) + " soft, " + limit_words(s.memlock_hard) +
                             " hard (RLIMIT_MEMLOCK). GPU drivers usually do not count it.");
  t.row("page size", size_words(s.page_size));
  t.row("THP", thp_words(s));
  t.row("huge pages", huge_page_words(s.huge_pages));
  t.row("NUMA nodes", std::to_string(s.numa_nodes));
}

std::string result_words(const Trial &trial) {
  if (trial.status != HP_OK) return hp_strerror(trial.status);
  char rate[32];
  std::snprintf(rate, sizeof(rate), "%.2f GiB/s", trial.gib_per_second());
  return "pinned in " + time_words(trial.register_ns) + ", " + rate;
}

}  // namespace

std::string table(const Report &r) {
  Table t;
  t.section("Library");
  t.row("version", hp_version_string());
  t.row("file", r.library_file.empty() ? "a part of this program" : r.library_file);
  add_backend(t, r.backend);
  add_runtimes(t, r.backend);
  add_system(t, r.system);
  return t.take();
}

std::string trial_table(const Trial &trial) {
  Table t;
  t.section("Trial pin of " + size_words(trial.bytes));
  t.row("result", result_words(trial));
  if (!trial.message.empty()) t.row("reason", trial.message);
  if (trial.status != HP_OK) return t.take();
  t.row("segments", std::to_string(trial.segments));
  t.row("release", trial.unregister_status == HP_OK ? "in " + time_words(trial.unregister_ns)
                                                    : "failed: " + trial.unregister_message);
  if (trial.start_ns)
    t.row("driver start", time_words(trial.start_ns) + ", once in a process (a first pin of one page)");
  return t.take();
}

std::string rates_table(const Rates &rates) {
  Table t;
  t.section("Rates of pinning " + size_words(rates.bytes));
  if (rates.status != HP_OK) {
    t.row("result", hp_strerror(rates.status));
    t.row("reason", rates.message);
    return t.take();
  }
  for (const Rate &r : rates.ways) {
    char rate[32];
    std::snprintf(rate, sizeof(rate), "%.2f GiB/s, ", rates.gib_per_second(r));
    t.row(r.name, rate + time_words(r.ns) + ": " + r.words);
  }
  return t.take();
}

}  // namespace info
