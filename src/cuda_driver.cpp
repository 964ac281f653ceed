#include "cuda_driver.h"

#include <atomic>

#include "gpu_runtime.h"

namespace hp {

namespace {

constexpr const char *kSonames[] = {"libcuda.so.1"};
constexpr int kMaxDevices = 64;

// Devices whose primary context we hold once, so that pins in it last.
constinit std::atomic<uint64_t> g_held{0};

}  // namespace

constinit const RuntimeName kCudaDriverName = {"libcuda", false, kSonames};

bool resolve_driver(const Library &library, CudaDriver &out, Text &why) {
  // The names with a suffix are today's functions; the plain ones take 32-bit sizes.
  const Symbol symbols[] = {
      {"cuInit", reinterpret_cast<void **>(&out.init), true},
      {"cuDriverGetVersion", reinterpret_cast<void **>(&out.driver_get_version), true},
      {"cuDeviceGetCount", reinterpret_cast<void **>(&out.device_get_count), true},
      {"cuDeviceGet", reinterpret_cast<void **>(&out.device_get), true},
      {"cuDeviceGetAttribute", reinterpret_cast<void **>(&out.device_get_attribute), true},
      {"cuMemHostRegister_v2", reinterpret_cast<void **>(&out.mem_host_register), true},
      {"cuMemHostUnregister", reinterpret_cast<void **>(&out.mem_host_unregister), true},
      {"cuMemHostGetDevicePointer_v2", reinterpret_cast<void **>(&out.mem_host_get_device_pointer), true},
      {"cuPointerGetAttribute", reinterpret_cast<void **>(&out.pointer_get_attribute), true},
      {"cuCtxGetCurrent", reinterpret_cast<void **>(&out.ctx_get_current), true},
      {"cuCtxPushCurrent_v2", reinterpret_cast<void **>(&out.ctx_push_current), true},
      {"cuCtxPopCurrent_v2", reinterpret_cast<void **>(&out.ctx_pop_current), true},
      {"cuDevicePrimaryCtxGetState", reinterpret_cast<void **>(&out.primary_ctx_get_state), true},
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void **>(&out.primary_ctx_retain), true},
      {"cuDevicePrimaryCtxRelease_v2", reinterpret_cast<void **>(&out.primary_ctx_release), true},
      {"cuGetErrorName", reinterpret_cast<void **>(&out.get_error_name), true},
      {"cuThreadExchangeStreamCaptureMode", reinterpret_cast<void **>(&out.exchange_capture_mode), false},
  };
  return resolve(library, symbols, why);
}

CudaContext::CudaContext(const CudaDriver &driver, int devices, int preferred, bool create) noexcept : driver_(driver) {
  void *context = nullptr;
  if (driver.ctx_get_current(&context) == 0 && context) return;
  for (int i = 0; i < devices && i < kMaxDevices; ++i) {
    const int ordinal = i == 0 ? preferred : i <= preferred ? i - 1 : i;  // the preferred one first
    int device = 0;
    unsigned flags = 0;
    int active = 0;
    if (driver.device_get(&device, ordinal) == 0 && driver.primary_ctx_get_state(device, &flags, &active) == 0 && active) {
      enter(ordinal, true);
      return;
    }
  }
  if (create) enter(preferred, false);
}

void CudaContext::enter(int ordinal, bool active) noexcept {
  int device = 0;
  void *context = nullptr;
  int code = driver_.device_get(&device, ordinal);
  if (code == 0) code = driver_.primary_ctx_retain(&context, device);
  if (code != 0) {
    outcome_ = {classify(code), code, "cuDevicePrimaryCtxRetain"};
    return;
  }
  const uint64_t bit = uint64_t{1} << ordinal;
  const bool held = g_held.fetch_or(bit) & bit;
  if (held && active) driver_.primary_ctx_release(device);
  code = driver_.ctx_push_current(context);
  if (code != 0) outcome_ = {classify(code), code, "cuCtxPushCurrent"};
  pushed_ = code == 0;
}

CudaContext::~CudaContext() {
  void *ours = nullptr;
  if (pushed_) driver_.ctx_pop_current(&ours);
}

}  // namespace hp
