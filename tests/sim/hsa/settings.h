// What a test may set and count in this stand-in; hostpin_hsa.h explains each.
#pragma once

#include <atomic>
#include <cstdint>

namespace sim {

struct HsaSettings {
  std::atomic<std::uint64_t> gpus = 1;
  std::atomic<std::uint64_t> alias;
  std::atomic<std::uint64_t> init_status;
  std::atomic<std::uint64_t> fail_lock_above;
  std::atomic<std::uint64_t> fail_lock_call;
};

struct HsaCounters {
  std::atomic<std::uint64_t> init;
  std::atomic<std::uint64_t> lock;
  std::atomic<std::uint64_t> unlock;
};

extern HsaSettings settings;
extern HsaCounters counters;

} // namespace sim
