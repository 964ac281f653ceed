// NVIDIA: libcudart, and libcuda where there is no runtime at hand.
#include <optional>

#include "cuda_driver.h"
#include "gpu_runtime.h"
#include "system.h"

namespace hp {

namespace {

constexpr const char *kSonames[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};
constexpr const char *kDeviceNodes[] = {"/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg", "/dev/nvhost-ctrl",
                                        "/dev/nvgpu"};
constexpr RuntimeName kName = {"libcudart", true, kSonames};
constexpr unsigned kOldestRuntime = 11000;  // before, the same codes meant other things
constexpr unsigned kProbes = 1024;

GpuRuntime g_api = {"cudaHostRegister", "cudaHostUnregister", "cudaHostGetDevicePointer", "cudaGetDeviceCount"};
cuda::DeviceGetAttribute *g_device_get_attribute;
CudaDriver g_driver;
bool g_has_driver = false;   // g_driver can be called
bool g_driver_only = false;  // there is no runtime
bool g_host_address = false;
int g_devices = 0;

void *pointer(uint64_t address) noexcept { return reinterpret_cast<void *>(address); }

// ---- Looking for it

bool resolve_api(const Library &library, Text &why) {
  const Symbol symbols[] = {
      {g_api.register_name, reinterpret_cast<void **>(&g_api.host_register), true},
      {g_api.unregister_name, reinterpret_cast<void **>(&g_api.host_unregister), true},
      {g_api.device_pointer_name, reinterpret_cast<void **>(&g_api.host_get_device_pointer), true},
      {"cudaGetLastError", reinterpret_cast<void **>(&g_api.get_last_error), true},
      {"cudaPeekAtLastError", reinterpret_cast<void **>(&g_api.peek_at_last_error), true},
      {g_api.count_name, reinterpret_cast<void **>(&g_api.get_device_count), true},
      {"cudaPointerGetAttributes", reinterpret_cast<void **>(&g_api.pointer_get_attributes), true},
      {"cudaGetErrorName", reinterpret_cast<void **>(&g_api.get_error_name), true},
      {"cudaRuntimeGetVersion", reinterpret_cast<void **>(&g_api.runtime_get_version), true},
      {"cudaDriverGetVersion", reinterpret_cast<void **>(&g_api.driver_get_version), true},
      {"cudaGetDevice", reinterpret_cast<void **>(&g_api.get_device), true},
      {"cudaSetDevice", reinterpret_cast<void **>(&g_api.set_device), true},
      {"cudaDeviceGetAttribute", reinterpret_cast<void **>(&g_device_get_attribute), true},
      {"cudaThreadExchangeStreamCaptureMode", reinterpret_cast<void **>(&g_api.exchange_capture_mode), false},
  };
  return resolve(library, symbols, why);
}

// What all devices can do. `attribute(which, ordinal)` asks one of them; 0 where it does not know.
template <class Attribute>
void ask_for_capabilities(hp_backend_info &info, Attribute attribute) {
  bool read_only = true;
  g_host_address = true;
  g_devices = info.device_count;
  for (int i = 0; i < g_devices; ++i) {
    read_only = read_only && attribute(cuda::kAttributeHostRegisterReadOnlySupported, i);
    g_host_address = g_host_address && attribute(cuda::kAttributeCanUseHostPointerForRegisteredMem, i);
  }
  info.capabilities = HP_CAP_DEVICE_POINTER | (g_host_address ? HP_CAP_HOST_ADDRESS : 0u) |
                      (read_only ? HP_CAP_READ_ONLY : 0u);
}

void look_for_driver() {
  Text ignored;
  for (const Library &library : loaded_copies(kCudaDriverName))
    if (resolve_driver(library, g_driver, ignored)) {
      g_has_driver = true;
      return;
    }
}

bool take_runtime(Look &look, const Library &library) {
  if (asked_before(look, library)) return false;
  Text why;
  if (!resolve_api(library, why)) {
    add_reason(look, why.c_str());
    return false;
  }
  LastErrorGuard errors(g_api);
  hp_backend_info info = look.info;
  if (!ask_for_devices(look, library, g_api, errors, info)) return false;
  if (info.runtime_version < kOldestRuntime) {
    why.add("%s is version %u, older than CUDA 11", library.file.c_str(), info.runtime_version);
    add_reason(look, why.c_str());
    return false;
  }
  g_driver_only = false;
  look_for_driver();  // the runtime has loaded it by now
  ask_for_capabilities(info, [&](int which, int ordinal) {
    int value = 0;
    return errors.check(g_device_get_attribute(&value, which, ordinal)) == 0 && value;
  });
  look.info = info;
  return true;
}

const char *driver_code_name(int code) noexcept {
  const char *name = nullptr;
  return g_driver.get_error_name(code, &name) == 0 && name ? name : "";
}

bool take_driver(Look &look, const Library &library) {
  if (asked_before(look, library)) return false;
  Text why;
  if (!resolve_driver(library, g_driver, why)) {
    add_reason(look, why.c_str());
    return false;
  }
  // Once only: without a device each call costs 20 ms and some file descriptors.
  const char *call = "cuInit";
  int code = g_driver.init(0);
  int count = 0;
  if (code == 0) code = g_driver.device_get_count(&count), call = "cuDeviceGetCount";
  if (code != 0 || count < 1) {
    why.add("%s: %s returned %d %s, %d device(s)", library.file.c_str(), call, code, driver_code_name(code), count);
    add_reason(look, why.c_str());
    return false;
  }
  int version = 0;
  g_driver.driver_get_version(&version);
  g_has_driver = g_driver_only = true;
  look.info.runtime_file = keep_text(library.file.c_str());
  look.info.runtime_version = 0;
  look.info.driver_version = static_cast<uint32_t>(version);
  look.info.device_count = count;
  ask_for_capabilities(look.info, [](int which, int ordinal) {
    int device = 0;
    int value = 0;
    return g_driver.device_get(&device, ordinal) == 0 && g_driver.device_get_attribute(&value, which, device) == 0 && value;
  });
  return true;
}

bool load(Look &look) {
  if (look.stage == Stage::named)
    return (look.config.cudart && open_and_take(look, look.config.cudart, take_runtime)) ||
           (look.config.cuda_driver && open_and_take(look, look.config.cuda_driver, take_driver));
  if (look.stage == Stage::loaded)
    return take_loaded(look, kName, take_runtime) || take_loaded(look, kCudaDriverName, take_driver);
  if (!look.forced && !any_exists(kDeviceNodes)) {
    add_reason(look, "no NVIDIA device node (/dev/nvidiactl)");
    return false;
  }
  return open_newest(look, kName, take_runtime) || open_newest(look, kCudaDriverName, take_driver);
}

// ---- Through the runtime

// The thread's context for a call of the runtime. Without the driver's functions the runtime does as it likes.
Outcome enter_context(std::optional<CudaContext> &context, LastErrorGuard &errors, bool create) noexcept {
  int device = 0;
  if (!g_has_driver) return {};
  errors.check(g_api.get_device(&device));
  context.emplace(g_driver, g_devices, device, create);
  return context->outcome();
}

Outcome runtime_pin(uint64_t start, uint64_t len, uint32_t flags) {
  LastErrorGuard errors(g_api);
  std::optional<CudaContext> context;
  const Outcome entered = enter_context(context, errors, true);
  if (entered.failure != Failure::none) return entered;
  const RelaxedCapture relaxed(g_api, errors);
  const int code = errors.check(g_api.host_register(pointer(start), len, flags));
  if (code != cuda::kHostMemoryAlreadyRegistered) return {classify(code), code, g_api.register_name};
  const Failure owner = who_owns(start, len, page_size(), kProbes, [&](uint64_t address) {
    cuda::PointerAttributes attributes{};
    return errors.check(g_api.pointer_get_attributes(&attributes, pointer(address))) == 0 &&
           attributes.type == cuda::kMemoryTypeHost;
  });
  return {owner == Failure::none ? Failure::foreign_part : owner, code, g_api.register_name};
}

Outcome runtime_unpin(uint64_t start) {
  LastErrorGuard errors(g_api);
  std::optional<CudaContext> context;
  enter_context(context, errors, false);
  const RelaxedCapture relaxed(g_api, errors);
  const int code = errors.check(g_api.host_unregister(pointer(start)));
  return {code ? classify_release(code) : Failure::none, code, g_api.unregister_name};
}

Outcome runtime_device_pointer(uint64_t start, uint64_t &device) {
  LastErrorGuard errors(g_api);
  std::optional<CudaContext> context;
  enter_context(context, errors, false);
  void *out = nullptr;
  const int code = errors.check(g_api.host_get_device_pointer(&out, pointer(start), 0));
  if (code == 0) device = reinterpret_cast<uint64_t>(out);
  return {classify(code), code, g_api.device_pointer_name};
}

// ---- Through the driver alone, which has no last error

class DriverRelaxedCapture {
public:
  DriverRelaxedCapture() noexcept { exchanged_ = g_driver.exchange_capture_mode && g_driver.exchange_capture_mode(&mode_) == 0; }
  ~DriverRelaxedCapture() {
    if (exchanged_) g_driver.exchange_capture_mode(&mode_);
  }
  DriverRelaxedCapture(const DriverRelaxedCapture &) = delete;
  DriverRelaxedCapture &operator=(const DriverRelaxedCapture &) = delete;

private:
  int mode_ = cuda::kCaptureModeRelaxed;
  bool exchanged_;
};

Outcome driver_pin(uint64_t start, uint64_t len, uint32_t flags) {
  const CudaContext context(g_driver, g_devices, 0, true);
  if (context.outcome().failure != Failure::none) return context.outcome();
  const DriverRelaxedCapture relaxed;
  const int code = g_driver.mem_host_register(pointer(start), len, flags);
  if (code != cuda::kHostMemoryAlreadyRegistered) return {classify(code), code, "cuMemHostRegister"};
  const Failure owner = who_owns(start, len, page_size(), kProbes, [](uint64_t address) {
    unsigned type = 0;
    return g_driver.pointer_get_attribute(&type, cuda::kPointerAttributeMemoryType, address) == 0 &&
           type == cuda::kMemoryTypeHost;
  });
  return {owner == Failure::none ? Failure::foreign_part : owner, code, "cuMemHostRegister"};
}

Outcome driver_unpin(uint64_t start) {
  const CudaContext context(g_driver, g_devices, 0, false);
  const DriverRelaxedCapture relaxed;
  const int code = g_driver.mem_host_unregister(pointer(start));
  return {code ? classify_release(code) : Failure::none, code, "cuMemHostUnregister"};
}

Outcome driver_device_pointer(uint64_t start, uint64_t &device) {
  const CudaContext context(g_driver, g_devices, 0, false);
  unsigned long long out = 0;
  const int code = g_driver.mem_host_get_device_pointer(&out, pointer(start), 0);
  if (code == 0) device = out;
  return {classify(code), code, "cuMemHostGetDevicePointer"};
}

// ---- The backend

Outcome pin(uint64_t start, uint64_t len, uint32_t flags, Pinned &out) {
  out.host_address = g_host_address;
  return g_driver_only ? driver_pin(start, len, flags) : runtime_pin(start, len, flags);  // our bits are CUDA's
}

Outcome unpin(uint64_t start, uint64_t) { return g_driver_only ? driver_unpin(start) : runtime_unpin(start); }

Outcome device_pointer(uint64_t start, uint64_t &device) {
  return g_driver_only ? driver_device_pointer(start, device) : runtime_device_pointer(start, device);
}

const char *code_name(int64_t code) {
  return g_driver_only ? driver_code_name(static_cast<int>(code)) : g_api.get_error_name(static_cast<int>(code));
}

// For a thread of the library to work in: the context that is current in this thread or, odd, the device that it has
// chosen without making a context, which CUDA 11 allows. Else it works in whatever CudaContext finds.
uint64_t current() {
  void *context = nullptr;
  if (g_has_driver && g_driver.ctx_get_current(&context) == 0 && context) return reinterpret_cast<uint64_t>(context);
  if (g_driver_only) return 0;
  LastErrorGuard errors(g_api);
  int device = 0;
  return errors.check(g_api.get_device(&device)) == 0 && device ? static_cast<uint64_t>(device) << 1 | 1 : 0;
}

void enter(uint64_t current) {
  if (current & 1) {
    LastErrorGuard errors(g_api);
    errors.check(g_api.set_device(static_cast<int>(current >> 1)));
  } else if (current) {
    g_driver.ctx_push_current(pointer(current));
  }
}

}  // namespace

constinit const Backend kCuda = {HP_BACKEND_CUDA, "cuda", load, pin, unpin, device_pointer, code_name, current, enter};

}  // namespace hp
