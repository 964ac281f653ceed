// AMD: libamdhip64. HIP keeps no account of overlapping registrations (older releases take a second one silently and
// leak it) and ends the process when a registration is released by another address than its base. The registry sees to
// both; what others in the process have registered is asked for here before each call.

#include "gpu_runtime.h"
#include "hip_abi.h"
#include "system.h"

namespace hp {

namespace {

constexpr const char *kSonames[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};
constexpr const char *kDeviceNodes[] = {"/dev/kfd", "/dev/dxg"};
constexpr RuntimeName kName = {"libamdhip64", false, kSonames};
constexpr unsigned kProbes = 16;

GpuRuntime g_api = {"hipHostRegister", "hipHostUnregister", "hipHostGetDevicePointer", "hipGetDeviceCount"};
int g_major = 0;

bool resolve_api(const Library &library, Text &why) {
  const Symbol symbols[] = {
      {g_api.register_name, reinterpret_cast<void **>(&g_api.host_register), true},
      {g_api.unregister_name, reinterpret_cast<void **>(&g_api.host_unregister), true},
      {g_api.device_pointer_name, reinterpret_cast<void **>(&g_api.host_get_device_pointer), true},
      {"hipGetLastError", reinterpret_cast<void **>(&g_api.get_last_error), true},
      {"hipPeekAtLastError", reinterpret_cast<void **>(&g_api.peek_at_last_error), true},
      {g_api.count_name, reinterpret_cast<void **>(&g_api.get_device_count), true},
      {"hipGetDevice", reinterpret_cast<void **>(&g_api.get_device), true},
      {"hipSetDevice", reinterpret_cast<void **>(&g_api.set_device), true},
      {"hipPointerGetAttributes", reinterpret_cast<void **>(&g_api.pointer_get_attributes), true},
      {"hipGetErrorName", reinterpret_cast<void **>(&g_api.get_error_name), true},
      {"hipRuntimeGetVersion", reinterpret_cast<void **>(&g_api.runtime_get_version), true},
      {"hipDriverGetVersion", reinterpret_cast<void **>(&g_api.driver_get_version), true},
      {"hipThreadExchangeStreamCaptureMode", reinterpret_cast<void **>(&g_api.exchange_capture_mode), false},
  };
  return resolve(library, symbols, why);
}

bool take(Look &look, const Library &library) {
  if (asked_before(look, library)) return false;
  Text why;
  if (!resolve_api(library, why)) {
    add_reason(look, why.c_str());
    return false;
  }
  LastErrorGuard errors(g_api);
  if (!ask_for_devices(look, library, g_api, errors, look.info)) return false;
  g_major = static_cast<int>(look.info.runtime_version) / hip::kVersionsPerMajor;
  return true;
}

bool load(Look &look) {
  if (look.stage == Stage::named) return look.config.amdhip && open_and_take(look, look.config.amdhip, take);
  if (look.stage == Stage::loaded) return take_loaded(look, kName, take);
  if (!look.forced && !any_exists(kDeviceNodes)) {
    add_reason(look, "no AMD GPU device node (/dev/kfd)");
    return false;
  }
  return open_newest(look, kName, take);
}

// Registered by anyone, and we know not of it? Before version 6 pageable memory was an error here.
bool is_registered(LastErrorGuard &errors, uint64_t address) noexcept {
  cuda::PointerAttributes attributes{};
  const int code = errors.check(g_api.pointer_get_attributes(&attributes, reinterpret_cast<void *>(address)));
  return code == 0 && (g_major < 6 || attributes.type != hip::kMemoryTypeUnregistered);
}

// Portable and mapped are what HIP does anyway, and newer releases refuse bits that they do not know. Read-only does
// not exist.
unsigned native_flags(uint32_t flags) noexcept { return flags & HP_REGISTER_IOMEMORY ? unsigned{hip::kRegisterIoMemory} : 0; }

Outcome pin(uint64_t start, uint64_t len, uint32_t flags, Pinned &out) {
  LastErrorGuard errors(g_api);
  const Failure owner =
      who_owns(start, len, page_size(), kProbes, [&](uint64_t address) { return is_registered(errors, address); });
  if (owner != Failure::none) return {owner, 0, "hipPointerGetAttributes"};
  const RelaxedCapture relaxed(g_api, errors);
  void *const ptr = reinterpret_cast<void *>(start);
  const int code = errors.check(g_api.host_register(ptr, len, native_flags(flags)));
  // If it were all of it, it would have been seen above.
  if (code == cuda::kHostMemoryAlreadyRegistered) return {Failure::foreign_part, code, g_api.register_name};
  if (code != 0) return {classify(code), code, g_api.register_name};
  void *device = nullptr;
  if (errors.check(g_api.host_get_device_pointer(&device, ptr, 0)) == 0) out.device = reinterpret_cast<uint64_t>(device);
  out.host_address = out.device == start;
  return {};
}

Outcome unpin(uint64_t start, uint64_t) {
  LastErrorGuard errors(g_api);
  const RelaxedCapture relaxed(g_api, errors);
  const int code = errors.check(g_api.host_unregister(reinterpret_cast<void *>(start)));
  return {code ? classify_release(code) : Failure::none, code, g_api.unregister_name};
}

Outcome device_pointer(uint64_t start, uint64_t &device) {
  LastErrorGuard errors(g_api);
  void *out = nullptr;
  const int code = errors.check(g_api.host_get_device_pointer(&out, reinterpret_cast<void *>(start), 0));
  if (code == 0) device = reinterpret_cast<uint64_t>(out);
  return {classify(code), code, g_api.device_pointer_name};
}

uint64_t current() {
  LastErrorGuard errors(g_api);
  int device = 0;
  return errors.check(g_api.get_device(&device)) == 0 ? static_cast<uint64_t>(device) : 0;
}

// Device 0 is every thread's first.
void enter(uint64_t device) {
  LastErrorGuard errors(g_api);
  if (device) errors.check(g_api.set_device(static_cast<int>(device)));
}

const char *code_name(int64_t code) { return g_api.get_error_name(static_cast<int>(code)); }

}  // namespace

constinit const Backend kHip = {HP_BACKEND_HIP, "hip", load, pin, unpin, device_pointer, code_name, current, enter};

}  // namespace hp
