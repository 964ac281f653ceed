// CUDA's driver library: which context a thread works in, and pinning without a runtime.
#pragma once
#include "backend.h"
#include "cuda_abi.h"
#include "runtime.h"

namespace hp {

struct CudaDriver {
  cuda::Init *init;
  cuda::DriverGetVersion *driver_get_version;
  cuda::DeviceGetCount *device_get_count;
  cuda::DeviceGet *device_get;
  cuda::DriverDeviceGetAttribute *device_get_attribute;
  cuda::MemHostRegister *mem_host_register;
  cuda::MemHostUnregister *mem_host_unregister;
  cuda::MemHostGetDevicePointer *mem_host_get_device_pointer;
  cuda::PointerGetAttribute *pointer_get_attribute;
  cuda::CtxGetCurrent *ctx_get_current;
  cuda::CtxPushCurrent *ctx_push_current;
  cuda::CtxPopCurrent *ctx_pop_current;
  cuda::DevicePrimaryCtxGetState *primary_ctx_get_state;
  cuda::DevicePrimaryCtxRetain *primary_ctx_retain;
  cuda::DevicePrimaryCtxRelease *primary_ctx_release;
  cuda::DriverGetErrorName *get_error_name;
  cuda::ThreadExchangeStreamCaptureMode *exchange_capture_mode;  // may be missing
};

extern const RuntimeName kCudaDriverName;

bool resolve_driver(const Library &library, CudaDriver &out, Text &why);

// Gives the calling thread a current context for as long as it lives, where it has none: the primary context of
// `preferred` if that is active, else of any device that has an active one, else (only if `create`) a new one on
// `preferred`. The thread is left as it was.
class CudaContext {
public:
  CudaContext(const CudaDriver &driver, int devices, int preferred, bool create) noexcept;
  ~CudaContext();
  CudaContext(const CudaContext &) = delete;
  CudaContext &operator=(const CudaContext &) = delete;

  const Outcome &outcome() const noexcept { return outcome_; }

private:
  void enter(int ordinal, bool active) noexcept;

  const CudaDriver &driver_;
  Outcome outcome_;
  bool pushed_ = false;
};

}  // namespace hp
