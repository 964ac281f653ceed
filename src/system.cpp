#include "system.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "lines.h"

namespace hp {

namespace {

uint64_t number_in(const char *path, uint64_t otherwise) noexcept {
  Lines lines(path);
  const char *line = lines.next();
  if (!line || *line < '0' || *line > '9') return otherwise;  // cgroups write "max"
  return std::strtoull(line, nullptr, 10);
}

// "key 123" or "key: 123 kB"
uint64_t number_after(const char *path, std::string_view key, uint64_t otherwise) noexcept {
  Lines lines(path);
  while (const char *line = lines.next()) {
    const char *number = line + key.size();
    if (std::string_view(line).starts_with(key) && *number == ' ') return std::strtoull(number, nullptr, 10);
  }
  return otherwise;
}

uint64_t meminfo(std::string_view key) noexcept {
  const uint64_t kib = number_after("/proc/meminfo", key, UINT64_MAX);
  return kib == UINT64_MAX ? kib : kib << 10;
}

// Where a version of cgroups tells what. Of what is in use it takes back first what files have in memory and nobody has
// used lately.
struct CgroupFiles {
  const char *mount;
  const char *limit;
  const char *usage;
  const char *given_back;  // in memory.stat
};
constexpr CgroupFiles kVersion1{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                "total_inactive_file"};
constexpr CgroupFiles kVersion2{"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

struct Allowance {
  uint64_t limit = UINT64_MAX;
  uint64_t left = UINT64_MAX;

  void add(const Allowance &other) noexcept {
    limit = std::min(limit, other.limit);
    left = std::min(left, other.left);
  }
};

Allowance allowance_of(const CgroupFiles &files, const char *group) noexcept {
  char path[PATH_MAX];
  const auto file = [&](const char *name) {
    std::snprintf(path, sizeof(path), "%s%s/%s", files.mount, group, name);
    return path;
  };
  Allowance a;
  a.limit = number_in(file(files.limit), UINT64_MAX);
  if (a.limit == UINT64_MAX) return a;
  const uint64_t usage = number_in(file(files.usage), 0);
  const uint64_t held = usage - std::min(usage, number_after(file("memory.stat"), files.given_back, 0));
  a.left = a.limit - std::min(a.limit, held);
  return a;
}

// The least of this process's own cgroup and all above it. A container may see only its root, under another name.
Allowance allowance_up(const CgroupFiles &files, const char *group) noexcept {
  Allowance least;
  char at[512];
  std::snprintf(at, sizeof(at), "%s", std::strcmp(group, "/") == 0 ? "" : group);
  for (;;) {
    least.add(allowance_of(files, at));
    char *slash = std::strrchr(at, '/');
    if (!slash) return least;
    *slash = 0;
  }
}

// Is the word in a list like "cpu,cpuacct"?
bool in_list(std::string_view list, std::string_view word) noexcept {
  for (size_t comma; (comma = list.find(',')) != list.npos; list.remove_prefix(comma + 1))
    if (list.substr(0, comma) == word) return true;
  return list == word;
}

Allowance cgroup_allowance() noexcept {
  Allowance least;
  Lines lines("/proc/self/cgroup");
  while (const char *line = lines.next()) {  // "ID:CONTROLLERS:GROUP"
    const char *controllers = std::strchr(line, ':');
    const char *group = controllers ? std::strchr(++controllers, ':') : nullptr;
    if (!group) continue;
    if (group == controllers)
      least.add(allowance_up(kVersion2, group + 1));
    else if (in_list({controllers, static_cast<size_t>(group - controllers)}, "memory"))
      least.add(allowance_up(kVersion1, group + 1));
  }
  return least;
}

}  // namespace

uint64_t page_size() noexcept {
  static constinit std::atomic<uint64_t> known{0};  // no guard, which a fork could leave taken
  uint64_t size = known.load(std::memory_order_relaxed);
  if (!size) known.store(size = static_cast<uint64_t>(sysconf(_SC_PAGESIZE)), std::memory_order_relaxed);
  return size;
}

std::chrono::steady_clock::time_point deadline_after(uint64_t ns) noexcept {
  using Clock = std::chrono::steady_clock;
  const auto now = Clock::now();
  const auto longest = static_cast<uint64_t>(std::chrono::nanoseconds(Clock::time_point::max() - now).count());
  return now + std::chrono::nanoseconds(std::min(ns, longest));
}

KernelVersion kernel_version() noexcept {
  KernelVersion v;
  utsname u;
  if (uname(&u) != 0 || std::sscanf(u.release, "%u.%u", &v.major, &v.minor) != 2) v = {};
  return v;
}

uint64_t kernel_pin_limit(KernelVersion kernel) noexcept {
  return kernel.major == 6 && kernel.minor >= 11 && kernel.minor <= 13 ? uint64_t{1} << 30 : 0;
}

bool any_exists(std::span<const char *const> paths) noexcept {
  for (const char *path : paths) {
    if (path[std::strlen(path) - 1] != '*') {
      if (access(path, F_OK) == 0) return true;
      continue;
    }
    glob_t found;
    const bool any = glob(path, GLOB_NOSORT, nullptr, &found) == 0;
    if (any) globfree(&found);
    if (any) return true;
  }
  return false;
}

bool running_under_wsl() noexcept {
  utsname u;
  if (uname(&u) == 0 && (std::strstr(u.release, "microsoft") || std::strstr(u.release, "Microsoft"))) return true;
  return access("/dev/dxg", F_OK) == 0;
}

uint64_t total_memory() noexcept { return meminfo("MemTotal:"); }

uint64_t usable_memory() noexcept { return std::min(total_memory(), cgroup_allowance().limit); }

uint64_t available_memory() noexcept { return std::min(meminfo("MemAvailable:"), cgroup_allowance().left); }

}  // namespace hp
