#include "system_facts.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "../config.h"
#include "../system.h"

namespace info {

namespace {

struct CloseFile {
  void operator()(FILE *f) const noexcept { std::fclose(f); }
};
using File = std::unique_ptr<FILE, CloseFile>;

std::string first_line(const std::string &path) {
  char line[256] = "";
  const File file(std::fopen(path.c_str(), "re"));
  if (!file || !std::fgets(line, sizeof(line), file.get())) return "";
  std::string text = line;
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

uint64_t number_in(const std::string &path) { return std::strtoull(first_line(path).c_str(), nullptr, 10); }

// "always [madvise] never" -> "madvise"
std::string chosen_word(const std::string &line) {
  const size_t from = line.find('[');
  const size_t to = line.find(']');
  return from < to && to != std::string::npos ? line.substr(from + 1, to - from - 1) : "";
}

// "0-3,5" -> 5
unsigned count_of_list(const char *list) {
  unsigned count = 0;
  while (*list >= '0' && *list <= '9') {
    char *end = nullptr;
    const unsigned long first = std::strtoul(list, &end, 10);
    const unsigned long last = *end == '-' ? std::strtoul(end + 1, &end, 10) : first;
    if (last >= first) count += static_cast<unsigned>(last - first + 1);
    list = *end == ',' ? end + 1 : end;
  }
  return count;
}

std::optional<uint64_t> limit(rlim_t value) {
  return value == RLIM_INFINITY ? std::nullopt : std::optional<uint64_t>(value);
}

void read_limits(SystemFacts &s) {
  rlimit memlock;
  if (getrlimit(RLIMIT_MEMLOCK, &memlock) != 0) return;
  s.memlock_soft = limit(memlock.rlim_cur);
  s.memlock_hard = limit(memlock.rlim_max);
}

void read_kernel(SystemFacts &s) {
  utsname u;
  if (uname(&u) == 0) s.kernel = u.release;
  if (const uint64_t bytes = hp::kernel_pin_limit(hp::kernel_version())) s.kernel_pin_limit = bytes;
  s.wsl = hp::running_under_wsl();
}

std::optional<uint64_t> known(uint64_t bytes) {
  return bytes == UINT64_MAX ? std::nullopt : std::optional<uint64_t>(bytes);
}

void read_memory(SystemFacts &s) {
  s.memory_total = known(hp::total_memory());
  s.memory_available = known(hp::available_memory());
  s.memory_usable = known(hp::usable_memory());
  if (s.memory_usable && (!s.memory_total || *s.memory_usable < *s.memory_total)) s.cgroup_limit = s.memory_usable;
}

void read_budget(SystemFacts &s) {
  static const hp::Config config = hp::make_config();  // has texts that are never freed
  if (config.budget_bytes) s.budget = config.budget_bytes;
}

void read_huge_pages(SystemFacts &s) {
  static const std::string kFolder = "/sys/kernel/mm/hugepages";
  s.thp = chosen_word(first_line("/sys/kernel/mm/transparent_hugepage/enabled"));
  s.thp_shmem = chosen_word(first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled"));
  const std::unique_ptr<DIR, int (*)(DIR *)> folder(opendir(kFolder.c_str()), [](DIR *d) { return closedir(d); });
  if (!folder) return;
  while (const dirent *entry = readdir(folder.get())) {
    unsigned long long kib = 0;
    if (std::sscanf(entry->d_name, "hugepages-%llukB", &kib) != 1) continue;
    const std::string pool = kFolder + '/' + entry->d_name;
    s.huge_pages.push_back(
        {uint64_t{kib} << 10, number_in(pool + "/free_hugepages"), number_in(pool + "/nr_hugepages")});
  }
  std::sort(s.huge_pages.begin(), s.huge_pages.end(), [](auto &a, auto &b) { return a.page_size < b.page_size; });
}

}  // namespace

SystemFacts read_system_facts() {
  SystemFacts s;
  s.page_size = hp::page_size();
  read_kernel(s);
  read_limits(s);
  read_memory(s);
  read_budget(s);
  read_huge_pages(s);
  s.numa_nodes = std::max(1u, count_of_list(first_line("/sys/devices/system/node/online").c_str()));
  return s;
}

}  // namespace info
