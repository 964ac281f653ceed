// One driver with some devices: the tables that the loader asks for, and the test's own entry points.
#include "../hsa/script.h"
#include "hostpin_ze.h"
#include "imports.h"
#include "memmap.h"
#include "settings.h"

#include <level_zero/ze_ddi.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>

#include <unistd.h>

namespace sim {

ZeSettings settings;
ZeCounters counters;

} // namespace sim

namespace {

constexpr sim::Setting keys[] = {
    {"init", &sim::settings.init},
    {"driver_get", &sim::settings.driver_get},
    {"device_get", &sim::settings.device_get},
    {"properties", &sim::settings.properties},
    {"devices", &sim::settings.devices},
    {"device_type", &sim::settings.device_type},
    {"lookup", &sim::settings.lookup},
    {"lookup_release", &sim::settings.lookup_release},
    {"lookup_nothing", &sim::settings.lookup_nothing},
    {"import", &sim::settings.import},
    {"release", &sim::settings.release},
    {"fail_import_above", &sim::settings.fail_import_above},
    {"fail_import_call", &sim::settings.fail_import_call},
    {"fail_release_call", &sim::settings.fail_release_call},
    {"context_create", &sim::settings.context_create},
    {"memmap", &sim::settings.memmap},
    {"memmap_ignored", &sim::settings.memmap_ignored},
    {"memmap_kept", &sim::settings.memmap_kept},
    {"memmap_result", &sim::settings.memmap_result},
    {"fail_memmap_call", &sim::settings.fail_memmap_call},
    {"strict", &sim::settings.strict},
};

constexpr sim::Setting counts[] = {
    {"init", &sim::counters.init},
    {"lookup", &sim::counters.lookup},
    {"import", &sim::counters.import},
    {"release", &sim::counters.release},
    {"live", &sim::counters.live},
    {"context", &sim::counters.context},
    {"memmap", &sim::counters.memmap},
    {"memmap_call", &sim::counters.memmap_call},
    {"allocation", &sim::counters.allocation},
};

// What the handles point to; only the addresses count.
constexpr uint32_t most_devices = 16;
char driver_object, device_objects[most_devices];
pid_t owner;

ze_driver_handle_t own_driver() { return reinterpret_cast<ze_driver_handle_t>(&driver_object); }

[[gnu::constructor]] void start() {
  owner = getpid();
  sim::apply_environment("HOSTPIN_SIM_ZE", keys);
}

// The convention of every zeXGet: the count alone if there is no array, else at most *count handles, and *count lowered
// to what there is.
template <class Handle> void list(uint32_t have, const char *objects, uint32_t *count, Handle *handles) {
  if (handles == nullptr || *count == 0) {
    *count = have;
    return;
  }
  *count = std::min(*count, have);
  for (uint32_t i = 0; i < *count; ++i) handles[i] = reinterpret_cast<Handle>(const_cast<char *>(objects + i));
}

ze_result_t init(ze_init_flags_t) {
  sim::check_process();
  ++sim::counters.init;
  return sim::as_result(sim::settings.init);
}

ze_result_t get_drivers(uint32_t *count, ze_driver_handle_t *drivers) {
  sim::check_process();
  if (sim::settings.driver_get != 0) return sim::as_result(sim::settings.driver_get);
  list(1, &driver_object, count, drivers);
  return ZE_RESULT_SUCCESS;
}

ze_result_t get_api_version(ze_driver_handle_t driver, ze_api_version_t *version) {
  sim::check_driver(driver);
  *version = ZE_API_VERSION_1_3;
  return ZE_RESULT_SUCCESS;
}

ze_result_t get_driver_properties(ze_driver_handle_t driver, ze_driver_properties_t *properties) {
  sim::check_driver(driver);
  properties->uuid = {};
  properties->driverVersion = 0x01020003;
  return ZE_RESULT_SUCCESS;
}

ze_result_t find_function(ze_driver_handle_t driver, const char *name, void **function) {
  const struct {
    std::string_view name;
    void *address;
    uint64_t refusal;
  } functions[] = {
      {"zexDriverImportExternalPointer", reinterpret_cast<void *>(sim::import_external_pointer), 0},
      {"zexDriverReleaseImportedPointer", reinterpret_cast<void *>(sim::release_imported_pointer),
       sim::settings.lookup_release},
      {"zexDriverGetHostPointerBaseAddress", reinterpret_cast<void *>(sim::host_pointer_base_address), 0},
  };
  sim::check_driver(driver);
  ++sim::counters.lookup;
  if (sim::settings.lookup_nothing != 0) return ZE_RESULT_SUCCESS;
  if (sim::settings.lookup != 0) return sim::as_result(sim::settings.lookup);
  for (const auto &one : functions) {
    if (one.name != name) continue;
    if (one.refusal != 0) return static_cast<ze_result_t>(one.refusal);
    *function = one.address;
    return ZE_RESULT_SUCCESS;
  }
  return ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

ze_result_t get_devices(ze_driver_handle_t driver, uint32_t *count, ze_device_handle_t *devices) {
  sim::check_driver(driver);
  if (sim::settings.device_get != 0) return sim::as_result(sim::settings.device_get);
  list(static_cast<uint32_t>(std::min<uint64_t>(sim::settings.devices, most_devices)), device_objects, count, devices);
  return ZE_RESULT_SUCCESS;
}

ze_result_t get_device_properties(ze_device_handle_t device, ze_device_properties_t *properties) {
  sim::check_process();
  const auto *object = reinterpret_cast<const char *>(device);
  if (object < device_objects || object >= std::end(device_objects))
    sim::punish("device handle %p is not ours", static_cast<void *>(device));
  if (sim::settings.properties != 0) return sim::as_result(sim::settings.properties);
  const ze_structure_type_t type = properties->stype;
  void *const next = properties->pNext;
  *properties = {};
  properties->stype = type;
  properties->pNext = next;
  properties->type = static_cast<ze_device_type_t>(sim::settings.device_type.load());
  properties->maxMemAllocSize = uint64_t{4} << 30;
  std::strcpy(properties->name, "hostpin test device");
  return ZE_RESULT_SUCCESS;
}

} // namespace

namespace sim {

void punish(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::fputs("test driver: ", stderr);
  std::vfprintf(stderr, format, arguments);
  std::fputc('\n', stderr);
  va_end(arguments);
  std::abort();
}

void check_process() {
  if (settings.strict != 0 && getpid() != owner) punish("called in a forked child");
}

void check_driver(ze_driver_handle_t driver) {
  check_process();
  if (driver != own_driver()) punish("driver handle %p is not ours: was it translated?", static_cast<void *>(driver));
}

} // namespace sim

extern "C" {

void hostpin_ze_script(const char *text) { sim::apply_script(text, keys); }

uint64_t hostpin_ze_count(const char *what) { return sim::read_counter(what, counts); }

ze_result_t zeGetGlobalProcAddrTable(ze_api_version_t, ze_global_dditable_t *table) {
  table->pfnInit = init;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeGetDriverProcAddrTable(ze_api_version_t, ze_driver_dditable_t *table) {
  table->pfnGet = get_drivers;
  table->pfnGetApiVersion = get_api_version;
  table->pfnGetProperties = get_driver_properties;
  table->pfnGetExtensionProperties = sim::list_extensions;
  table->pfnGetExtensionFunctionAddress = find_function;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeGetDeviceProcAddrTable(ze_api_version_t, ze_device_dditable_t *table) {
  table->pfnGet = get_devices;
  table->pfnGetProperties = get_device_properties;
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeGetContextProcAddrTable(ze_api_version_t, ze_context_dditable_t *table) {
  sim::fill_context_table(*table);
  return ZE_RESULT_SUCCESS;
}

ze_result_t zeGetMemProcAddrTable(ze_api_version_t, ze_mem_dditable_t *table) {
  sim::fill_memory_table(*table);
  return ZE_RESULT_SUCCESS;
}

} // extern "C"
