// Memory to try pinning with, and what has to be done before.
#pragma once
#include <cstdint>

namespace info {

uint64_t now_ns();

// Private memory, unmapped only once it is not pinned. Throws std::system_error if it cannot be had.
class Memory {
public:
  explicit Memory(uint64_t bytes);
  ~Memory();
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;

  void touch();  // makes every page present
  void *address() const { return address_; }
  bool pinned = false;

private:
  uint64_t bytes_;
  void *address_;
};

// If memory runs out, the kernel shall end this process and none that does real work.
void volunteer_for_oom();

// A driver makes its context at the first pin, which can take longer than the pin that is to be measured. Pins one page,
// and returns how long that took, 0 if it was not pinned.
uint64_t start_driver();

}  // namespace info
