// libamdhip64 of major version 5, 6 or 7. Where they differ, the table in README.md says so.
#define SIM_VENDOR hip
#define SIM_MAJOR (SIM_VERSION / 10000000)
#include "runtime.h"

using sim::Arguments;

namespace {

// Before 7 every call overwrites the last error, successes too; from 7 on it is kept until it is read.
void keep_error(int code) {
    sim::ErrorSlot &slot = error_slot();
    slot.latest = code;
    if (SIM_MAJOR < 7 || code != sim::success) slot.last = code;
}

// With no device 5 answers "invalid device" to everything but the device count.
int initialise() {
    int code = sim::initialise(runtime);
    return SIM_MAJOR <= 5 && code == sim::no_device ? int{sim::invalid_device} : code;
}

template <class Body> int api(const char *name, const Arguments &arguments, Body body) {
    auto initialised_body = [&] {
        int code = initialise();
        return code == sim::success ? body() : code;
    };
    return course(name, arguments, initialised_body, keep_error);
}

// Reads the thread's error state: never recorded as a call of its own.
template <class Body> int error_query(const char *name, Body body) {
    auto initialised_body = [&] {
        int code = initialise();
        return code == sim::success ? body(error_slot()) : code;
    };
    return course(name, {}, initialised_body, unrecorded);
}

template <class T> int put(T *out, T value) {
    if (!out) return sim::invalid_value;
    *out = value;
    return sim::success;
}

bool valid_device(int device) { return device >= 0 && device < sim::device_count(); }

// HIP numbers its attributes in another order than CUDA; -1 where this version has no such attribute.
int cuda_number(int attribute) {
    switch (attribute) {
    case 3: return 19;                        // CanMapHostMemory
    case 4: return 91;                        // CanUseHostPointerForRegisteredMem
    case 65: return 88;                       // PageableMemoryAccess
    case 66: return 100;                      // PageableMemoryAccessUsesHostPageTables
    case 85: return 41;                       // UnifiedAddressing
    case 90: return SIM_MAJOR >= 6 ? 99 : -1; // HostRegisterSupported
    default: return -1;
    }
}

struct PointerAttributes {
    int type;
    int device;
    void *device_pointer;
    void *host_pointer;
    int is_managed;
    unsigned allocation_flags;
};

} // namespace

VENDOR_API int hipInit(unsigned flags) {
    return api("hipInit", {}, [&] { return flags ? int{sim::invalid_value} : int{sim::success}; });
}

VENDOR_API int hipHostRegister(void *ptr, size_t size, unsigned flags) {
    return api("hipHostRegister", {ptr, size, flags}, [&] { return sim::hip::pin(runtime, ptr, size, flags); });
}

VENDOR_API int hipHostUnregister(void *ptr) {
    return api("hipHostUnregister", {ptr}, [&] { return sim::hip::unpin("hipHostUnregister", ptr); });
}

VENDOR_API int hipHostGetDevicePointer(void **device, void *host, unsigned flags) {
    return api("hipHostGetDevicePointer", {host, 0, flags}, [&] { return sim::hip::device_pointer(host, device); });
}

// Meant for allocations: registered memory is refused from 5.7 on.
VENDOR_API int hipHostGetFlags(unsigned *flags, void *host) {
    return api("hipHostGetFlags", {host}, [&] {
        bool known = sim::hip::describe(host).type == 1;
        return known && SIM_MAJOR <= 5 ? put(flags, 0u) : int{sim::invalid_value};
    });
}

VENDOR_API int hipPointerGetAttributes(PointerAttributes *out, const void *ptr) {
    return api("hipPointerGetAttributes", {ptr}, [&] {
        if (!out || !ptr) return int{sim::invalid_value};
        sim::PointerInfo info = sim::hip::describe(ptr);
        if (info.type == 0 && SIM_MAJOR <= 5) return int{sim::invalid_value};
        *out = {};
        out->type = SIM_MAJOR <= 5 ? 0 : info.type;
        out->device_pointer = info.device_pointer;
        out->host_pointer = info.host;
        return int{sim::success};
    });
}

VENDOR_API int hipGetLastError() {
    return error_query("hipGetLastError", [](sim::ErrorSlot &slot) { return sim::take_error(slot.last); });
}

VENDOR_API int hipPeekAtLastError() {
    return error_query("hipPeekAtLastError", [](sim::ErrorSlot &slot) { return slot.last; });
}

#if SIM_VERSION >= 60000000
// The code of the latest call, whichever it was.
VENDOR_API int hipExtGetLastError() {
    return error_query("hipExtGetLastError", [](sim::ErrorSlot &slot) { return sim::take_error(slot.latest); });
}
#endif

VENDOR_API int hipGetDeviceCount(int *count) {
    auto body = [&] {
        int code = sim::initialise(runtime);
        if (code == sim::no_device && count) *count = 0;
        return code == sim::success ? put(count, sim::device_count()) : code;
    };
    return course("hipGetDeviceCount", {}, body, keep_error);
}

VENDOR_API int hipGetDevice(int *device) {
    return api("hipGetDevice", {}, [&] { return put(device, sim::hip::device()); });
}

VENDOR_API int hipSetDevice(int device) {
    return api("hipSetDevice", {}, [&] { return sim::hip::set_device(device); });
}

VENDOR_API int hipDeviceGetAttribute(int *value, int attribute, int device) {
    return api("hipDeviceGetAttribute", {}, [&] {
        if (!valid_device(device)) return int{sim::invalid_device};
        int number = cuda_number(attribute);
        return number < 0 ? int{sim::invalid_value} : put(value, sim::attribute(device, number));
    });
}

VENDOR_API int hipDeviceSynchronize() {
    return api("hipDeviceSynchronize", {}, [] { return int{sim::success}; });
}

VENDOR_API const char *hipGetErrorName(int code) {
    course(
        "hipGetErrorName", {}, [] { return 0; }, unrecorded);
    const char *name = sim::code_name(sim::Vendor::hip, code);
    return name ? name : "hipErrorUnknown";
}

// 5 gives the name here as well.
VENDOR_API const char *hipGetErrorString(int code) {
    course(
        "hipGetErrorString", {}, [] { return 0; }, unrecorded);
    const char *text = SIM_MAJOR <= 5 ? sim::code_name(sim::Vendor::hip, code) : sim::code_text(code);
    return text ? text : "hipErrorUnknown";
}

// The version queries succeed without a device.
VENDOR_API int hipRuntimeGetVersion(int *version) {
    return course(
        "hipRuntimeGetVersion", {}, [&] { return put(version, SIM_VERSION); }, keep_error);
}

VENDOR_API int hipDriverGetVersion(int *version) {
    return course(
        "hipDriverGetVersion", {}, [&] { return put(version, SIM_VERSION); }, keep_error);
}

VENDOR_API int hipThreadExchangeStreamCaptureMode(int *mode) {
    return api("hipThreadExchangeStreamCaptureMode", {}, [&] { return sim::exchange_capture_mode(mode); });
}
