// One process of the machine at a time pins the same shared memory: drivers have to move such pages first, and fail when
// several processes make them do so at once.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

#include "counted_ranges.h"

namespace hp {

// Held until release(), against other processes and other threads. The wait is bounded; who waited in vain goes on without.
// That is logged when it ends, as a log callback may register as well: not before the registration is published.
// The kernel takes the lock back from a process that dies, and forked children do not have it.
class SharedMemoryLock {
public:
  // Waits until `stop` becomes true at the longest, if given.
  SharedMemoryLock(std::span<const Extent> stretches, const std::atomic<bool> *stop) noexcept;
  ~SharedMemoryLock();
  void release() noexcept;
  SharedMemoryLock(const SharedMemoryLock &) = delete;
  SharedMemoryLock &operator=(const SharedMemoryLock &) = delete;

private:
  int try_all() noexcept;
  int find_file() noexcept;
  void drop_file() noexcept;
  void enlist() noexcept;

  std::vector<off_t> bytes_;  // one for each shared object, in the order in which everybody takes them
  size_t held_ = 0;           // so many of them
  const char *path_ = nullptr;
  int file_ = -1;  // may be shared with others of this process
  bool enlisted_ = false;
  int error_ = 0;  // why it is not held
  SharedMemoryLock *next_ = nullptr;

  static bool held_here(off_t byte) noexcept;
  static SharedMemoryLock *first_;  // of all in this process
};

}  // namespace hp
