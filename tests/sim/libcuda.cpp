// libcuda.so.1: the documented driver calls that pinning needs. No call leaves an error behind.
#include <cstring>

#define SIM_VENDOR cuda
#define SIM_MAJOR 0 // the driver is never too old for itself
#define SIM_VERSION 0
#include "runtime.h"

using sim::Arguments;
using sim::Context;

namespace {

// A call that works before cuInit.
template <class Body> int plain(const char *name, Body body) { return course(name, {}, body, unrecorded); }

template <class Body> int api(const char *name, const Arguments &arguments, Body body) {
    auto initialised_body = [&] {
        if (SIM_INIT) return int{SIM_INIT};
        if (int code = sim::lost_code()) return code;
        return sim::initialised(sim::Vendor::cuda) ? body() : int{sim::not_initialized};
    };
    return course(name, arguments, initialised_body, unrecorded);
}

// A call that needs a context which is current and alive.
template <class Body> int with_context(const char *name, const Arguments &arguments, Body body) {
    return api(name, arguments, [&] {
        Context *context = sim::cuda::current();
        int code = sim::cuda::usable(context);
        return code == sim::success ? body(context) : code;
    });
}

template <class T> int put(T *out, T value) {
    if (!out) return sim::invalid_value;
    *out = value;
    return sim::success;
}

bool valid_device(int device) { return device >= 0 && device < sim::device_count(); }

int put_text(const char **out, const char *text) { return text ? put(out, text) : int{sim::invalid_value}; }

int pointer_attribute(void *out, int attribute, const sim::PointerInfo &info) {
    auto write = [out](const auto &value) {
        std::memcpy(out, &value, sizeof value);
        return int{sim::success};
    };
    switch (attribute) {
    case 2: return write(info.type);                                            // MEMORY_TYPE
    case 3: return write(info.device_pointer);                                  // DEVICE_POINTER
    case 4: return info.type == 1 ? write(info.host) : int{sim::invalid_value}; // HOST_POINTER
    case 8: return write(false);                                                // IS_MANAGED
    case 9: return write(info.device);                                          // DEVICE_ORDINAL
    case 11: return write(info.range);                                          // RANGE_START_ADDR
    case 12: return write(info.range_length);                                   // RANGE_SIZE
    default: return sim::invalid_value;
    }
}

} // namespace

VENDOR_API int cuInit(unsigned flags) {
    return course(
        "cuInit", {}, [&] { return flags ? int{sim::invalid_value} : sim::initialise(runtime); }, unrecorded);
}

VENDOR_API int cuDriverGetVersion(int *version) {
    return plain("cuDriverGetVersion", [&] { return SIM_INIT ? int{SIM_INIT} : put(version, sim::driver_version()); });
}

VENDOR_API int cuDeviceGetCount(int *count) {
    return api("cuDeviceGetCount", {}, [&] { return put(count, sim::device_count()); });
}

VENDOR_API int cuDeviceGet(int *device, int ordinal) {
    return api("cuDeviceGet", {}, [&] { return valid_device(ordinal) ? put(device, ordinal) : int{sim::invalid_device}; });
}

VENDOR_API int cuDeviceGetAttribute(int *value, int attribute, int device) {
    return api("cuDeviceGetAttribute", {},
               [&] { return valid_device(device) ? put(value, sim::attribute(device, attribute)) : int{sim::invalid_device}; });
}

VENDOR_API int cuMemHostRegister_v2(void *ptr, size_t size, unsigned flags) {
    return with_context("cuMemHostRegister_v2", {ptr, size, flags},
                        [&](Context *context) { return sim::cuda::pin(context, ptr, size, flags); });
}

// Works from any context and with none current, but not with one that is destroyed.
VENDOR_API int cuMemHostUnregister(void *ptr) {
    return api("cuMemHostUnregister", {ptr}, [&] {
        bool destroyed = sim::cuda::usable(sim::cuda::current()) == sim::context_destroyed;
        return destroyed ? int{sim::context_destroyed} : sim::cuda::unpin(ptr);
    });
}

VENDOR_API int cuMemHostGetDevicePointer_v2(void **device, void *host, unsigned flags) {
    return with_context("cuMemHostGetDevicePointer_v2", {host, 0, flags},
                        [&](Context *) { return flags ? int{sim::invalid_value} : sim::cuda::device_pointer(host, device); });
}

VENDOR_API int cuMemHostGetFlags(unsigned *flags, void *host) {
    return with_context("cuMemHostGetFlags", {host}, [&](Context *) { return sim::cuda::flags(host, flags); });
}

VENDOR_API int cuDevicePrimaryCtxRetain(Context **context, int device) {
    return api("cuDevicePrimaryCtxRetain", {},
               [&] { return context ? sim::cuda::retain_primary(device, context) : int{sim::invalid_value}; });
}

VENDOR_API int cuDevicePrimaryCtxRelease_v2(int device) {
    return api("cuDevicePrimaryCtxRelease_v2", {}, [&] { return sim::cuda::release_primary(device); });
}

VENDOR_API int cuDevicePrimaryCtxReset_v2(int device) {
    return api("cuDevicePrimaryCtxReset_v2", {}, [&] { return sim::cuda::reset_primary(device); });
}

VENDOR_API int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    return api("cuDevicePrimaryCtxGetState", {}, [&] {
        if (!flags || !active) return int{sim::invalid_value};
        *flags = 0;
        return sim::cuda::primary_active(device, active);
    });
}

VENDOR_API int cuCtxCreate_v2(Context **context, unsigned, int device) {
    return api("cuCtxCreate_v2", {}, [&] { return context ? sim::cuda::create(device, context) : int{sim::invalid_value}; });
}

VENDOR_API int cuCtxDestroy_v2(Context *context) {
    return api("cuCtxDestroy_v2", {}, [&] { return sim::cuda::destroy(context); });
}

VENDOR_API int cuCtxGetCurrent(Context **context) {
    return api("cuCtxGetCurrent", {}, [&] { return put(context, sim::cuda::current()); });
}

VENDOR_API int cuCtxSetCurrent(Context *context) {
    return api("cuCtxSetCurrent", {}, [&] { return sim::cuda::set_current(context); });
}

VENDOR_API int cuCtxPushCurrent_v2(Context *context) {
    return api("cuCtxPushCurrent_v2", {}, [&] { return sim::cuda::push(context); });
}

VENDOR_API int cuCtxPopCurrent_v2(Context **context) {
    return api("cuCtxPopCurrent_v2", {}, [&] { return sim::cuda::pop(context); });
}

VENDOR_API int cuCtxGetDevice(int *device) {
    return with_context("cuCtxGetDevice", {}, [&](Context *context) { return put(device, sim::cuda::device_of(context)); });
}

VENDOR_API int cuGetErrorName(int code, const char **name) {
    return plain("cuGetErrorName", [&] { return put_text(name, sim::driver_code_name(code)); });
}

VENDOR_API int cuGetErrorString(int code, const char **text) {
    return plain("cuGetErrorString", [&] { return put_text(text, sim::code_text(code)); });
}

VENDOR_API int cuPointerGetAttribute(void *out, int attribute, uint64_t ptr) {
    const void *address = reinterpret_cast<const void *>(ptr);
    return with_context("cuPointerGetAttribute", {address}, [&](Context *) {
        sim::PointerInfo info = sim::cuda::describe(address);
        return out && info.type ? pointer_attribute(out, attribute, info) : int{sim::invalid_value};
    });
}

VENDOR_API int cuThreadExchangeStreamCaptureMode(int *mode) {
    return api("cuThreadExchangeStreamCaptureMode", {}, [&] { return sim::exchange_capture_mode(mode); });
}

VENDOR_API int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status);

namespace {

struct Entry {
    const char *name; // without the version suffix, as cuGetProcAddress takes it
    void *function;
};

const Entry entries[] = {
    {"cuInit", reinterpret_cast<void *>(cuInit)},
    {"cuDriverGetVersion", reinterpret_cast<void *>(cuDriverGetVersion)},
    {"cuDeviceGetCount", reinterpret_cast<void *>(cuDeviceGetCount)},
    {"cuDeviceGet", reinterpret_cast<void *>(cuDeviceGet)},
    {"cuDeviceGetAttribute", reinterpret_cast<void *>(cuDeviceGetAttribute)},
    {"cuMemHostRegister", reinterpret_cast<void *>(cuMemHostRegister_v2)},
    {"cuMemHostUnregister", reinterpret_cast<void *>(cuMemHostUnregister)},
    {"cuMemHostGetDevicePointer", reinterpret_cast<void *>(cuMemHostGetDevicePointer_v2)},
    {"cuMemHostGetFlags", reinterpret_cast<void *>(cuMemHostGetFlags)},
    {"cuDevicePrimaryCtxRetain", reinterpret_cast<void *>(cuDevicePrimaryCtxRetain)},
    {"cuDevicePrimaryCtxRelease", reinterpret_cast<void *>(cuDevicePrimaryCtxRelease_v2)},
    {"cuDevicePrimaryCtxReset", reinterpret_cast<void *>(cuDevicePrimaryCtxReset_v2)},
    {"cuDevicePrimaryCtxGetState", reinterpret_cast<void *>(cuDevicePrimaryCtxGetState)},
    {"cuCtxCreate", reinterpret_cast<void *>(cuCtxCreate_v2)},
    {"cuCtxDestroy", reinterpret_cast<void *>(cuCtxDestroy_v2)},
    {"cuCtxGetCurrent", reinterpret_cast<void *>(cuCtxGetCurrent)},
    {"cuCtxSetCurrent", reinterpret_cast<void *>(cuCtxSetCurrent)},
    {"cuCtxPushCurrent", reinterpret_cast<void *>(cuCtxPushCurrent_v2)},
    {"cuCtxPopCurrent", reinterpret_cast<void *>(cuCtxPopCurrent_v2)},
    {"cuCtxGetDevice", reinterpret_cast<void *>(cuCtxGetDevice)},
    {"cuGetErrorName", reinterpret_cast<void *>(cuGetErrorName)},
    {"cuGetErrorString", reinterpret_cast<void *>(cuGetErrorString)},
    {"cuPointerGetAttribute", reinterpret_cast<void *>(cuPointerGetAttribute)},
    {"cuThreadExchangeStreamCaptureMode", reinterpret_cast<void *>(cuThreadExchangeStreamCaptureMode)},
    {"cuGetProcAddress", reinterpret_cast<void *>(cuGetProcAddress_v2)},
};

} // namespace

VENDOR_API int cuGetProcAddress_v2(const char *symbol, void **function, int, uint64_t, int *status) {
    return plain("cuGetProcAddress_v2", [&] {
        if (!symbol || !function) return int{sim::invalid_value};
        *function = nullptr;
        for (const Entry &entry : entries)
            if (std::strcmp(entry.name, symbol) == 0) *function = entry.function;
        if (status) *status = *function ? 0 : 1;
        return *function ? int{sim::success} : int{sim::not_found};
    });
}
