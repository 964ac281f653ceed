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

#include "lines.h"

namespace hp {

namespace {

uint64_t number_in(const char *path, uint64_t otherwise) noexcept {
  Lines lines(path);
  const char *line = lines.next();
  if (!line || *line < '0' || *line > '9') return otherwise;  // cgroups write "max"
  return std::strtoull(line, nullptr, 10);
}

// The smallest limit on the way from this process's own cgroup up to the root.
uint64_t limit_up(const char *mount, const char *group, const char *file) noexcept {
  uint64_t limit = UINT64_MAX;
  char path[PATH_MAX];
  char at[512];
  std::snprintf(at, sizeof(at), "%s", group);
  for (;;) {
    std::snprintf(path, sizeof(path), "%s%s/%s", mount, std::strcmp(at, "/") == 0 ? "" : at, file);
    limit = std::min(limit, number_in(path, UINT64_MAX));
    char *slash = std::strrchr(at, '/');
    if (!slash) return limit;
    *slash = 0;
  }
}

uint64_t cgroup_limit() noexcept {
  uint64_t limit = UINT64_MAX;
  Lines lines("/proc/self/cgroup");
  while (const char *line = lines.next()) {
    const char *controllers = std::strchr(line, ':');
    const char *group = controllers ? std::strchr(controllers + 1, ':') : nullptr;
    if (!group) continue;
    if (group == controllers + 1)
      limit = std::min(limit, limit_up("/sys/fs/cgroup", group + 1, "memory.max"));
    else if (std::strstr(controllers, "memory"))
      limit = std::min(limit, limit_up("/sys/fs/cgroup/memory", group + 1, "memory.limit_in_bytes"));
  }
  return limit;
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

uint64_t usable_memory() noexcept {
  uint64_t total = UINT64_MAX;
  Lines lines("/proc/meminfo");
  while (const char *line = lines.next()) {
    unsigned long long kib = 0;
    if (std::sscanf(line, "MemTotal: %llu kB", &kib) == 1) {
      total = uint64_t{kib} << 10;
      break;
    }
  }
  return std::min(total, cgroup_limit());
}

}  // namespace hp
