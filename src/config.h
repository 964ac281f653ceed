// Configuration: defaults, what hp_configure() said, and above both the environment.
#pragma once
#include <cstdint>

#include "error.h"

struct hp_config;

namespace hp {

struct Config {
  int32_t backend = 0;  // HP_BACKEND_
  int32_t log_level = 0;
  bool ze_memmap = false;
  uint64_t max_segment = 0;    // 0: the backend's own
  uint64_t budget_bytes = 0;   // 0: none
  unsigned budget_percent = 0; // make_config() makes bytes of it
  unsigned prefault_threads = 0;  // 0: by cores
  const char *cudart = nullptr;
  const char *cuda_driver = nullptr;
  const char *amdhip = nullptr;
  const char *ze_loader = nullptr;
};

// None of these is for two threads at once: state.cpp calls them under its lock.

// Keeps what hp_configure() was given for make_config().
int32_t configure(const hp_config &in, Report &report);

// The configuration in force; to be called once. Its texts are never freed.
Config make_config();

// Logs a warning for each bad value that make_config() met, and forgets them.
void warn_of_bad_values() noexcept;

// "512M", "64G", "4096": bytes; false if it is anything else or does not fit.
bool parse_size(const char *text, uint64_t &bytes) noexcept;

}  // namespace hp
