// Start, shut-down, system information, and the test's own entry points.
#include "hostpin_hsa.h"
#include "script.h"
#include "settings.h"

#include <hsa/hsa.h>

#include <algorithm>

namespace sim {
HsaSettings settings;
HsaCounters counters;
} // namespace sim

namespace {

constexpr sim::Setting keys[] = {
    {"gpus", &sim::settings.gpus},
    {"alias", &sim::settings.alias},
    {"init_status", &sim::settings.init_status},
    {"fail_lock_above", &sim::settings.fail_lock_above},
    {"fail_lock_call", &sim::settings.fail_lock_call},
};

constexpr sim::Setting counts[] = {
    {"init", &sim::counters.init},
    {"lock", &sim::counters.lock},
    {"unlock", &sim::counters.unlock},
};

// Before hsa_init, so that a script which the test sets later is not overwritten.
[[gnu::constructor]] void read_environment() { sim::apply_environment("HOSTPIN_SIM_HSA", keys); }

hsa_status_t succeed() { return HSA_STATUS_SUCCESS; }

} // namespace

extern "C" {

void hostpin_hsa_script(const char *text) { sim::apply_script(text, keys); }

uint64_t hostpin_hsa_count(const char *what) { return sim::read_counter(what, counts); }

hsa_status_t hsa_init() {
  ++sim::counters.init;
  return static_cast<hsa_status_t>(sim::settings.init_status.load());
}

hsa_status_t hsa_shut_down() { return HSA_STATUS_SUCCESS; }

hsa_status_t hsa_status_string(hsa_status_t, const char **text) {
  *text = "a status of the HSA stand-in";
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_system_get_info(hsa_system_info_t attribute, void *value) {
  switch (attribute) {
    case HSA_SYSTEM_INFO_VERSION_MAJOR:
    case HSA_SYSTEM_INFO_VERSION_MINOR: *static_cast<uint16_t *>(value) = 1; break;
    case HSA_SYSTEM_INFO_TIMESTAMP: *static_cast<uint64_t *>(value) = 1; break;
    case HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY: *static_cast<uint64_t *>(value) = 1'000'000'000; break;
    default: return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  }
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_system_extension_supported(uint16_t, uint16_t, uint16_t, bool *supported) {
  *supported = true;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_agent_extension_supported(uint16_t, hsa_agent_t, uint16_t, uint16_t, bool *supported) {
  *supported = false;
  return HSA_STATUS_SUCCESS;
}

// HIP asks for the loader's table to find out which code object holds an address; nothing here loads any.
hsa_status_t hsa_system_get_major_extension_table(uint16_t, uint16_t, size_t bytes, void *table) {
  using Function = hsa_status_t (*)();
  std::fill_n(static_cast<Function *>(table), bytes / sizeof(Function), succeed);
  return HSA_STATUS_SUCCESS;
}

} // extern "C"
