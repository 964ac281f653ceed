// What a test may set and count in this driver; hostpin_ze.h explains each.
#pragma once

#include <level_zero/ze_api.h>

#include <atomic>
#include <cstdint>

namespace sim {

struct ZeSettings {
  std::atomic<std::uint64_t> init;
  std::atomic<std::uint64_t> driver_get;
  std::atomic<std::uint64_t> device_get;
  std::atomic<std::uint64_t> properties;
  std::atomic<std::uint64_t> devices = 1;
  std::atomic<std::uint64_t> device_type = ZE_DEVICE_TYPE_GPU;
  std::atomic<std::uint64_t> lookup;
  std::atomic<std::uint64_t> lookup_release;
  std::atomic<std::uint64_t> lookup_nothing;
  std::atomic<std::uint64_t> import;
  std::atomic<std::uint64_t> release;
  std::atomic<std::uint64_t> fail_import_above;
  std::atomic<std::uint64_t> fail_import_call;
  std::atomic<std::uint64_t> fail_release_call;
  std::atomic<std::uint64_t> context_create;
  std::atomic<std::uint64_t> memmap;
  std::atomic<std::uint64_t> memmap_ignored;
  std::atomic<std::uint64_t> memmap_kept;
  std::atomic<std::uint64_t> memmap_result;
  std::atomic<std::uint64_t> fail_memmap_call;
  std::atomic<std::uint64_t> strict = 1;
};

struct ZeCounters {
  std::atomic<std::uint64_t> init;
  std::atomic<std::uint64_t> lookup;
  std::atomic<std::uint64_t> import;
  std::atomic<std::uint64_t> release;
  std::atomic<std::uint64_t> live;
  std::atomic<std::uint64_t> context;
  std::atomic<std::uint64_t> memmap;
  std::atomic<std::uint64_t> memmap_call;
  std::atomic<std::uint64_t> allocation;
};

extern ZeSettings settings;
extern ZeCounters counters;

inline ze_result_t as_result(const std::atomic<std::uint64_t> &setting) {
  return static_cast<ze_result_t>(setting.load());
}

// Ends the program for a use that a real driver would punish.
[[noreturn]] void punish(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Every entry point calls one of these first.
void check_process();
void check_driver(ze_driver_handle_t driver);

} // namespace sim
