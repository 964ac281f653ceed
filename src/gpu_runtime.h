// What CUDA's runtime and HIP have in common: the same functions under two names, and a last error for each thread that
// a failed call leaves behind.
#pragma once
#include <cstdint>
#include <span>

#include "backend.h"
#include "cuda_abi.h"
#include "runtime.h"

namespace hp {

struct GpuRuntime {
  // Names, for look-up and for messages.
  const char *register_name;
  const char *unregister_name;
  const char *device_pointer_name;
  const char *count_name;

  cuda::HostRegister *host_register = nullptr;
  cuda::HostUnregister *host_unregister = nullptr;
  cuda::HostGetDevicePointer *host_get_device_pointer = nullptr;
  cuda::GetLastError *get_last_error = nullptr;
  cuda::PeekAtLastError *peek_at_last_error = nullptr;
  cuda::GetDeviceCount *get_device_count = nullptr;
  cuda::GetDevice *get_device = nullptr;
  cuda::SetDevice *set_device = nullptr;
  cuda::PointerGetAttributes *pointer_get_attributes = nullptr;
  cuda::GetErrorName *get_error_name = nullptr;
  cuda::RuntimeGetVersion *runtime_get_version = nullptr;
  cuda::DriverGetVersion *driver_get_version = nullptr;
  cuda::ThreadExchangeStreamCaptureMode *exchange_capture_mode = nullptr;  // may be missing
};

// Around calls that may fail: if no error was pending before them, takes ours out of the thread's slot, once. An error
// that was pending is the application's and stays. Never in a loop: without a device the slot never becomes empty.
class LastErrorGuard {
public:
  explicit LastErrorGuard(const GpuRuntime &api) noexcept : api_(api), pending_(api.peek_at_last_error() != 0) {}
  ~LastErrorGuard() {
    if (failed_ && !pending_) api_.get_last_error();
  }
  LastErrorGuard(const LastErrorGuard &) = delete;
  LastErrorGuard &operator=(const LastErrorGuard &) = delete;
  int check(int code) noexcept {
    failed_ = failed_ || code != 0;
    return code;
  }

private:
  const GpuRuntime &api_;
  bool pending_;
  bool failed_ = false;
};

// While it lives, a stream capture that another thread has begun does not forbid this thread to register.
class RelaxedCapture {
public:
  RelaxedCapture(const GpuRuntime &api, LastErrorGuard &errors) noexcept : api_(api), errors_(errors) {
    exchanged_ = api.exchange_capture_mode && errors.check(api.exchange_capture_mode(&mode_)) == 0;
  }
  ~RelaxedCapture() {
    if (exchanged_) errors_.check(api_.exchange_capture_mode(&mode_));
  }
  RelaxedCapture(const RelaxedCapture &) = delete;
  RelaxedCapture &operator=(const RelaxedCapture &) = delete;

private:
  const GpuRuntime &api_;
  LastErrorGuard &errors_;
  int mode_ = cuda::kCaptureModeRelaxed;
  bool exchanged_;
};

// What a code means; CUDA's runtime, CUDA's driver and HIP share them.
Failure classify(int code) noexcept;
Failure classify_release(int code) noexcept;  // of a release: gone is not a failure

// Has this runtime been asked before? If not, it is noted as asked.
bool asked_before(Look &look, const Library &library);

// The stages of a look, for a `take` that asks one library and says in look.reason why it will not do.
using Take = bool (*)(Look &look, const Library &library);
bool open_and_take(Look &look, const char *file, Take take);
bool take_loaded(Look &look, const RuntimeName &name, Take take);
bool open_newest(Look &look, const RuntimeName &name, Take take);
void add_reason(Look &look, const char *reason);

// Devices and versions; false, with the reason in the look, where there is no device.
bool ask_for_devices(Look &look, const Library &library, const GpuRuntime &api, LastErrorGuard &errors,
                     hp_backend_info &out);

// Are the pages of a range, as many as is bearable to ask for, registered? `registered(address)` asks for one.
template <class Registered>
Failure who_owns(uint64_t start, uint64_t len, uint64_t page, unsigned probes, Registered registered) {
  const uint64_t pages = len / page;
  const uint64_t n = pages < probes ? pages : probes;
  uint64_t yes = 0;
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t at = n == 1 ? 0 : (pages - 1) * i / (n - 1)  /* far from 2^64 */;
    yes += registered(start + at * page) ? 1 : 0;
  }
  return yes == 0 ? Failure::none : yes == n ? Failure::foreign : Failure::foreign_part;
}

}  // namespace hp
