// libcudart of one major version. Prototypes and codes are those of NVIDIA's documentation of the runtime API.
#include <dlfcn.h>

#include <cstring>

#define SIM_VENDOR cuda
#define SIM_MAJOR (SIM_VERSION / 1000)
#include "runtime.h"

using sim::Arguments;

namespace {

// As the real one: the driver's library is looked for when the first call needs it.
bool driver_loaded() {
    static void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return driver;
}

int initialise() {
    if (sim::loads_driver() && !driver_loaded()) return sim::insufficient_driver;
    return sim::initialise(runtime);
}

void keep_error(int code) {
    if (code != sim::success) error_slot().last = code;
}

// A call that needs the driver.
template <class Body> int api(const char *name, const Arguments &arguments, Body body) {
    auto initialised_body = [&] {
        int code = initialise();
        return code == sim::success ? body() : code;
    };
    return course(name, arguments, initialised_body, keep_error);
}

// A call that also needs a context.
template <class Body> int with_context(const char *name, const Arguments &arguments, Body body) {
    return api(name, arguments, [&] { return body(sim::cuda::runtime_context()); });
}

// A call that works without a driver.
template <class Body> int plain(const char *name, Body body) { return course(name, {}, body, keep_error); }

bool valid_device(int device) { return device >= 0 && device < sim::device_count(); }

template <class T> int put(T *out, T value) {
    if (!out) return sim::invalid_value;
    *out = value;
    return sim::success;
}

struct PointerAttributes {
    int type;
    int device;
    void *device_pointer;
    void *host_pointer;
#if SIM_VERSION >= 13000
    long reserved[8];
#endif
};

int copy(void *to, const void *from, size_t length, int kind, bool whole = false) {
    return sim::cuda::copy(to, from, length, kind, whole);
}

} // namespace

VENDOR_API int cudaHostRegister(void *ptr, size_t size, unsigned flags) {
    return with_context("cudaHostRegister", {ptr, size, flags},
                        [&](sim::Context *context) { return sim::cuda::pin(context, ptr, size, flags); });
}

VENDOR_API int cudaHostUnregister(void *ptr) {
    return with_context("cudaHostUnregister", {ptr}, [&](sim::Context *) { return sim::cuda::unpin(ptr); });
}

VENDOR_API int cudaHostGetDevicePointer(void **device, void *host, unsigned flags) {
    return with_context("cudaHostGetDevicePointer", {host, 0, flags}, [&](sim::Context *) {
        return flags ? int{sim::invalid_value} : sim::cuda::device_pointer(host, device);
    });
}

VENDOR_API int cudaHostGetFlags(unsigned *flags, void *host) {
    return with_context("cudaHostGetFlags", {host}, [&](sim::Context *) { return sim::cuda::flags(host, flags); });
}

VENDOR_API int cudaPointerGetAttributes(PointerAttributes *out, const void *ptr) {
    return with_context("cudaPointerGetAttributes", {ptr}, [&](sim::Context *) {
        if (!out || !ptr) return int{sim::invalid_value};
        sim::PointerInfo info = sim::cuda::describe(ptr);
        *out = {};
        out->type = info.type;
        out->device = info.device;
        out->device_pointer = info.device_pointer;
        out->host_pointer = info.host;
        return int{sim::success};
    });
}

VENDOR_API int cudaGetLastError() {
    auto body = [] {
        int code = initialise();
        return code != sim::success ? code : sim::take_error(error_slot().last);
    };
    return course("cudaGetLastError", {}, body, unrecorded);
}

VENDOR_API int cudaPeekAtLastError() {
    auto body = [] {
        int code = initialise();
        return code != sim::success ? code : error_slot().last;
    };
    return course("cudaPeekAtLastError", {}, body, unrecorded);
}

VENDOR_API int cudaGetDeviceCount(int *count) {
    return api("cudaGetDeviceCount", {}, [&] { return put(count, sim::device_count()); });
}

VENDOR_API int cudaGetDevice(int *device) {
    return api("cudaGetDevice", {}, [&] { return put(device, sim::cuda::runtime_device()); });
}

// Creates the context at once from 12.0 on.
VENDOR_API int cudaSetDevice(int device) {
    return api("cudaSetDevice", {}, [&] { return sim::cuda::set_runtime_device(device, SIM_VERSION >= 12000); });
}

VENDOR_API int cudaDeviceGetAttribute(int *value, int attribute, int device) {
    return api("cudaDeviceGetAttribute", {},
               [&] { return valid_device(device) ? put(value, sim::attribute(device, attribute)) : int{sim::invalid_device}; });
}

VENDOR_API int cudaDeviceSynchronize() {
    return with_context("cudaDeviceSynchronize", {}, [](sim::Context *) { return int{sim::success}; });
}

VENDOR_API int cudaDeviceReset() {
    return api("cudaDeviceReset", {}, [] { return sim::cuda::reset_primary(sim::cuda::runtime_device()); });
}

VENDOR_API const char *cudaGetErrorName(int code) {
    plain("cudaGetErrorName", [] { return 0; });
    const char *name = sim::code_name(sim::Vendor::cuda, code);
    return name ? name : "unrecognized error code";
}

VENDOR_API const char *cudaGetErrorString(int code) {
    plain("cudaGetErrorString", [] { return 0; });
    const char *text = sim::code_text(code);
    return text ? text : "unrecognized error code";
}

VENDOR_API int cudaRuntimeGetVersion(int *version) {
    return plain("cudaRuntimeGetVersion", [&] { return put(version, SIM_VERSION); });
}

VENDOR_API int cudaDriverGetVersion(int *version) {
    return plain("cudaDriverGetVersion", [&] { return put(version, SIM_INIT ? 0 : sim::driver_version()); });
}

VENDOR_API int cudaThreadExchangeStreamCaptureMode(int *mode) {
    return api("cudaThreadExchangeStreamCaptureMode", {}, [&] { return sim::exchange_capture_mode(mode); });
}

VENDOR_API int cudaHostAlloc(void **ptr, size_t size, unsigned flags) {
    return with_context("cudaHostAlloc", {nullptr, size, flags},
                        [&](sim::Context *context) { return sim::cuda::allocate_host(context, size, flags, ptr); });
}

VENDOR_API int cudaFreeHost(void *ptr) {
    return with_context("cudaFreeHost", {ptr}, [&](sim::Context *) { return sim::cuda::free_host(ptr); });
}

VENDOR_API int cudaMalloc(void **ptr, size_t size) {
    return with_context("cudaMalloc", {nullptr, size},
                        [&](sim::Context *context) { return sim::cuda::allocate_device(context, size, ptr); });
}

VENDOR_API int cudaFree(void *ptr) {
    return with_context("cudaFree", {ptr}, [&](sim::Context *) { return sim::cuda::free_device(ptr); });
}

VENDOR_API int cudaMemcpy(void *to, const void *from, size_t size, int kind) {
    return with_context("cudaMemcpy", {from, size}, [&](sim::Context *) { return copy(to, from, size, kind); });
}

VENDOR_API int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *) {
    return with_context("cudaMemcpyAsync", {from, size}, [&](sim::Context *) { return copy(to, from, size, kind); });
}

// Streams are tokens: everything is done by the time a call returns.
VENDOR_API int cudaStreamCreate(void **stream) {
    return with_context("cudaStreamCreate", {}, [&](sim::Context *) { return put(stream, std::malloc(1)); });
}

VENDOR_API int cudaStreamDestroy(void *stream) {
    return with_context("cudaStreamDestroy", {}, [&](sim::Context *) {
        std::free(stream);
        return stream ? int{sim::success} : int{sim::invalid_value};
    });
}

VENDOR_API int cudaStreamSynchronize(void *) {
    return with_context("cudaStreamSynchronize", {}, [](sim::Context *) { return int{sim::success}; });
}

VENDOR_API int cudaStreamBeginCapture(void *stream, int mode) {
    return with_context("cudaStreamBeginCapture", {},
                        [&](sim::Context *) { return stream ? sim::begin_capture(mode) : int{sim::capture_unsupported}; });
}

VENDOR_API int cudaStreamEndCapture(void *, void **graph) {
    return with_context("cudaStreamEndCapture", {}, [&](sim::Context *) {
        int code = put(graph, static_cast<void *>(nullptr));
        return code == sim::success ? sim::end_capture() : code;
    });
}

#if SIM_VERSION >= 12000

namespace {

int copy_batch(void *const *to, const void *const *from, const size_t *sizes, size_t count, void *stream, size_t *failed) {
    if (!stream || !to || !from || !sizes || count == 0) return sim::invalid_value;
    for (size_t i = 0; i < count; ++i) {
        if (int code = copy(to[i], from[i], sizes[i], 4, true)) {
            if (failed) *failed = i;
            return code;
        }
    }
    return sim::success;
}

} // namespace

// 12.8 to 12.9 have an index of the copy that failed, 13 has not.
#if SIM_VERSION < 13000
VENDOR_API int cudaMemcpyBatchAsync(void **to, void **from, size_t *sizes, size_t count, void *, size_t *, size_t, size_t *failed,
                                    void *stream) {
    return with_context("cudaMemcpyBatchAsync", {nullptr, count},
                        [&](sim::Context *) { return copy_batch(to, from, sizes, count, stream, failed); });
}
#else
VENDOR_API int cudaMemcpyBatchAsync(void *const *to, const void *const *from, const size_t *sizes, size_t count, void *, size_t *,
                                    size_t, void *stream) {
    return with_context("cudaMemcpyBatchAsync", {nullptr, count},
                        [&](sim::Context *) { return copy_batch(to, from, sizes, count, stream, nullptr); });
}
#endif

#endif
