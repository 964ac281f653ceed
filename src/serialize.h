// One process of the machine at a time pins the same shared memory: drivers have to move such pages first, and fail when
// several processes make them do so at once.
#pragma once
#include <atomic>
#include <mutex>
#include <span>

#include "counted_ranges.h"

namespace hp {

// Held while it lives. The wait is bounded; who waited in vain goes on without. The kernel takes the lock back from a
// process that dies, and forked children do not have it.
class SharedMemoryLock {
public:
  // Waits until `stop` becomes true at the longest, if given.
  SharedMemoryLock(std::span<const Extent> pages, const std::atomic<bool> *stop) noexcept;
  ~SharedMemoryLock();
  SharedMemoryLock(const SharedMemoryLock &) = delete;
  SharedMemoryLock &operator=(const SharedMemoryLock &) = delete;

private:
  std::unique_lock<std::mutex> process_;  // record locks are a process's, not a thread's
  int file_ = -1;
};

}  // namespace hp
