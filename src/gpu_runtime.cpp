#include "gpu_runtime.h"

#include <algorithm>
#include <iterator>

#include "hip_abi.h"

namespace hp {

Failure classify(int code) noexcept {
  static constexpr struct {
    int first, last;
    Failure failure;
  } kCodes[] = {
      {cuda::kSuccess, cuda::kSuccess, Failure::none},
      {cuda::kInvalidValue, cuda::kInvalidValue, Failure::invalid},
      {cuda::kMemoryAllocation, cuda::kMemoryAllocation, Failure::memory},
      {cuda::kInitializationError, cuda::kCudartUnloading, Failure::device},
      {cuda::kStubLibrary, cuda::kCallRequiresNewerDriver, Failure::device},
      {cuda::kDevicesUnavailable, cuda::kDevicesUnavailable, Failure::device},
      {cuda::kNoDevice, cuda::kSoftwareValidityNotEstablished, Failure::device},
      {cuda::kStartupFailure, cuda::kStartupFailure, Failure::device},
      {cuda::kDeviceUninitialized, cuda::kDeviceUninitialized, Failure::device},
      {cuda::kIllegalAddress, cuda::kIllegalAddress, Failure::device},
      {cuda::kContextIsDestroyed, cuda::kAssert, Failure::device},
      {cuda::kHostMemoryAlreadyRegistered, cuda::kHostMemoryAlreadyRegistered, Failure::foreign},
      {cuda::kHardwareStackError, cuda::kLaunchFailure, Failure::device},
      {cuda::kTensorMemoryLeak, cuda::kTensorMemoryLeak, Failure::device},
      {cuda::kNotPermitted, cuda::kNotSupported, Failure::unsupported},
      {cuda::kSystemNotReady, cuda::kCompatNotSupportedOnDevice, Failure::device},
      {cuda::kStreamCaptureUnsupported, cuda::kStreamCaptureWrongThread, Failure::capture},
      {cuda::kUnknown, cuda::kUnknown, Failure::device},
      {hip::kRuntimeMemory, hip::kRuntimeMemory, Failure::memory},
  };
  for (const auto &c : kCodes)
    if (code >= c.first && code <= c.last) return c.failure;
  return Failure::other;
}

Failure classify_release(int code) noexcept {
  static constexpr int kGone[] = {cuda::kInitializationError, cuda::kCudartUnloading, cuda::kDeviceUninitialized,
                                  cuda::kContextIsDestroyed, cuda::kHostMemoryNotRegistered};
  return std::find(std::begin(kGone), std::end(kGone), code) != std::end(kGone) ? Failure::gone : classify(code);
}

bool asked_before(Look &look, const Library &library) {
  if (std::find(look.asked.begin(), look.asked.end(), library.handle) != look.asked.end()) return true;
  look.asked.push_back(library.handle);
  return false;
}

void add_reason(Look &look, const char *reason) { look.reason.add("%s%s", look.reason.empty() ? "" : "; ", reason); }

bool ask_for_devices(Look &look, const Library &library, const GpuRuntime &api, LastErrorGuard &errors,
                     hp_backend_info &out) {
  // First, because CUDA 11 does not even tell its version without a driver.
  int count = 0;
  const int code = errors.check(api.get_device_count(&count));
  if (code != 0 || count < 1) {
    Text why;
    why.add("%s: %s returned %d %s, %d device(s)", library.file.c_str(), api.count_name, code, api.get_error_name(code),
            count);
    add_reason(look, why.c_str());
    return false;
  }
  int runtime = 0;
  int driver = 0;
  errors.check(api.runtime_get_version(&runtime));
  errors.check(api.driver_get_version(&driver));
  out.runtime_file = keep_text(library.file.c_str());
  out.runtime_version = static_cast<uint32_t>(runtime);
  out.driver_version = static_cast<uint32_t>(driver);
  out.device_count = count;
  out.capabilities = HP_CAP_DEVICE_POINTER;
  return true;
}

bool open_and_take(Look &look, const char *file, Take take) {
  Text why;
  const Library library = open_library(file, why);
  if (library.handle) return take(look, library);
  add_reason(look, why.c_str());
  return false;
}

bool take_loaded(Look &look, const RuntimeName &name, Take take) {
  const std::vector<Library> copies = loaded_copies(name);
  return std::any_of(copies.begin(), copies.end(), [&](const Library &library) { return take(look, library); });
}

bool open_newest(Look &look, const RuntimeName &name, Take take) {
  bool any = false;
  for (const char *soname : name.sonames) {
    Text why;
    const Library library = open_library(soname, why);
    any = any || library.handle;
    if (library.handle && take(look, library)) return true;
  }
  if (any) return false;
  Text why;
  why.add("none of");
  for (const char *soname : name.sonames) why.add(" %s", soname);
  why.add(" can be opened");
  add_reason(look, why.c_str());
  return false;
}

}  // namespace hp
