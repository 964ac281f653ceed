#include "libraries.h"

#include <dlfcn.h>

#include <stdexcept>

namespace gpu {

namespace {

void *open_library(const std::string &file) {
    void *library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    return library;
}

template <class Function> void find_optional(void *library, const char *name, Function &function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
}

template <class Function> void find(void *library, const char *name, Function &function) {
    find_optional(library, name, function);
    if (!function) throw std::runtime_error(dlerror());
}

CudaRuntime load_runtime(void *library) {
    CudaRuntime cuda{};
    find(library, "cudaHostRegister", cuda.host_register);
    find(library, "cudaHostUnregister", cuda.host_unregister);
    find(library, "cudaHostGetDevicePointer", cuda.host_get_device_pointer);
    find(library, "cudaHostGetFlags", cuda.host_get_flags);
    find(library, "cudaHostAlloc", cuda.host_alloc);
    find(library, "cudaMalloc", cuda.malloc);
    find(library, "cudaFree", cuda.free);
    find(library, "cudaPointerGetAttributes", cuda.pointer_get_attributes);
    find(library, "cudaGetLastError", cuda.get_last_error);
    find(library, "cudaPeekAtLastError", cuda.peek_at_last_error);
    find(library, "cudaGetErrorName", cuda.get_error_name);
    find(library, "cudaGetDeviceCount", cuda.get_device_count);
    find(library, "cudaGetDevice", cuda.get_device);
    find(library, "cudaSetDevice", cuda.set_device);
    find(library, "cudaDeviceGetAttribute", cuda.device_get_attribute);
    find(library, "cudaDeviceReset", cuda.device_reset);
    find(library, "cudaRuntimeGetVersion", cuda.runtime_get_version);
    find(library, "cudaDriverGetVersion", cuda.driver_get_version);
    find(library, "cudaMemcpy", cuda.memcpy);
    find(library, "cudaMemcpyAsync", cuda.memcpy_async);
    find(library, "cudaStreamCreate", cuda.stream_create);
    find(library, "cudaStreamDestroy", cuda.stream_destroy);
    find(library, "cudaStreamSynchronize", cuda.stream_synchronize);
    find(library, "cudaStreamBeginCapture", cuda.stream_begin_capture);
    find(library, "cudaStreamEndCapture", cuda.stream_end_capture);
    find(library, "cudaThreadExchangeStreamCaptureMode", cuda.thread_exchange_stream_capture_mode);
    find_optional(library, "cudaMemcpyBatchAsync", cuda.memcpy_batch_async);
    return cuda;
}

CudaDriver load_driver(void *library) {
    CudaDriver cuda{};
    find(library, "cuInit", cuda.init);
    find(library, "cuDeviceGetCount", cuda.device_get_count);
    find_optional(library, "cuDeviceGetName", cuda.device_get_name);
    find(library, "cuMemHostRegister_v2", cuda.mem_host_register);
    find(library, "cuMemHostUnregister", cuda.mem_host_unregister);
    find(library, "cuDevicePrimaryCtxRetain", cuda.device_primary_ctx_retain);
    find(library, "cuDevicePrimaryCtxRelease_v2", cuda.device_primary_ctx_release);
    find(library, "cuDevicePrimaryCtxGetState", cuda.device_primary_ctx_get_state);
    find(library, "cuCtxGetCurrent", cuda.ctx_get_current);
    find(library, "cuCtxSetCurrent", cuda.ctx_set_current);
    find(library, "cuGetErrorName", cuda.get_error_name);
    return cuda;
}

Hostpin load_hostpin(void *library) {
    Hostpin hostpin{};
    find(library, "hp_configure", hostpin.configure);
    find(library, "hp_device_pointer", hostpin.device_pointer);
    find(library, "hp_get_backend", hostpin.get_backend);
    find(library, "hp_get_stats", hostpin.get_stats);
    find(library, "hp_last_error", hostpin.last_error);
    find(library, "hp_query", hostpin.query);
    find(library, "hp_register", hostpin.pin);
    find(library, "hp_unregister", hostpin.unpin);
    find(library, "hp_unregister_all", hostpin.unpin_all);
    return hostpin;
}

} // namespace

Libraries load(const Files &files) {
    Libraries lib;
    lib.driver = load_driver(open_library(files.driver));
    lib.runtime = load_runtime(open_library(files.runtime));
    if (!files.hostpin.empty()) lib.hostpin = load_hostpin(open_library(files.hostpin));
    return lib;
}

std::string runtime_file(const Libraries &lib) {
    Dl_info info{};
    dladdr(reinterpret_cast<void *>(lib.runtime.host_register), &info);
    return info.dli_fname ? info.dli_fname : "";
}

int runtime_version(const Libraries &lib) {
    int version = 0;
    lib.runtime.runtime_get_version(&version);
    return version;
}

} // namespace gpu
