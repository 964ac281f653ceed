// What the operating system tells of this machine and this process.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "error.h"

namespace hp {

uint64_t page_size() noexcept;

// A point in time that many nanoseconds from now, or the last one there is.
std::chrono::steady_clock::time_point deadline_after(uint64_t ns) noexcept;

struct KernelVersion {
  unsigned major = 0;
  unsigned minor = 0;
};
KernelVersion kernel_version() noexcept;

// Bytes that one pin may have on this kernel, 0 for no known limit: 6.11 to 6.13 refuse 2 GiB and more.
uint64_t kernel_pin_limit(KernelVersion kernel) noexcept;

// Is one of these files there? "*" at the end stands for any suffix.
bool any_exists(std::span<const char *const> paths) noexcept;

bool running_under_wsl() noexcept;

// Bytes of memory, UINT64_MAX where they are not told: what the machine has; what this process may use, which is less
// where its cgroup has a limit; and what it can have now without taking from others.
uint64_t total_memory() noexcept;
uint64_t usable_memory() noexcept;
uint64_t available_memory() noexcept;

}  // namespace hp
