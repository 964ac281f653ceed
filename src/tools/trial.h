// A trial pin: how long it takes to pin fresh memory here, and whether it works at all.
#pragma once
#include <cstdint>
#include <string>

namespace info {

struct Trial {
  uint64_t bytes = 0;
  int32_t status = 0;      // of hp_register()
  std::string message;     // what it had to say, unless HP_OK
  uint64_t start_ns = 0;   // the first pin, of one page, which starts the driver; 0 if it was not pinned
  uint64_t register_ns = 0;
  uint64_t segments = 0;
  int32_t unregister_status = 0;
  std::string unregister_message;
  uint64_t unregister_ns = 0;

  double gib_per_second() const;
};

// Throws std::system_error if the memory cannot be had.
Trial pin_fresh_memory(uint64_t bytes);

}  // namespace info
