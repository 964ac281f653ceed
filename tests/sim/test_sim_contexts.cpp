// Devices and contexts, through libcuda and through the runtimes.
#include <string>
#include <thread>

#include "sim_test.h"

namespace {

struct Driver : Fresh {
    Driver() { CHECK(hps_script("devices=2") == 0); }

    Library cuda{"cuda", "libcuda.so.1"};
    Library v11{"cudart11", "libcudart.so.11.0"};
    Library v12{"cudart12", "libcudart.so.12"};
    Memory memory{mib};
    void *context = nullptr;

    int add(size_t at) { return cuda("cuMemHostRegister_v2", memory.at(at), page, 0u); }
    int remove(size_t at) { return cuda("cuMemHostUnregister", memory.at(at)); }
};

void *current(const Library &cuda) {
    void *context = reinterpret_cast<void *>(1);
    CHECK(cuda("cuCtxGetCurrent", &context) == 0);
    return context;
}

int device_of(const Library &runtime) {
    int device = -1;
    CHECK(runtime("cudaGetDevice", &device) == 0);
    return device;
}

} // namespace

TEST_CASE_METHOD(Driver, "before cuInit everything but the version answers 3") {
    int value = 0;
    CHECK(cuda("cuDeviceGetCount", &value) == 3);
    CHECK(cuda("cuCtxGetCurrent", &context) == 3);
    CHECK(add(0) == 3);
    CHECK(cuda("cuDriverGetVersion", &value) == 0);
    CHECK(value == 13000);
    CHECK(cuda("cuInit", 1u) == 1);
    CHECK(cuda("cuInit", 0u) == 0);
    CHECK(cuda("cuDeviceGetCount", &value) == 0);
    CHECK(value == 2);
    CHECK(cuda("cuDeviceGet", &value, 1) == 0);
    CHECK(value == 1);
    CHECK(cuda("cuDeviceGet", &value, 2) == 101);
    CHECK(cuda("cuDeviceGetAttribute", &value, 99, 1) == 0);
    CHECK(value == 1);
    CHECK(cuda("cuDeviceGetAttribute", &value, 99, 2) == 101);
}

TEST_CASE_METHOD(Driver, "a runtime's first call initialises the driver for libcuda too") {
    int count = 0;
    CHECK(v12("cudaGetDeviceCount", &count) == 0);
    CHECK(cuda("cuDeviceGetCount", &count) == 0);
}

TEST_CASE_METHOD(Driver, "without a device cuInit answers 100 each time, and the rest 3") {
    REQUIRE(hps_script("devices=0") == 0);
    int count = 5;
    CHECK(cuda("cuInit", 0u) == 100);
    CHECK(cuda("cuInit", 0u) == 100);
    CHECK(cuda("cuDeviceGetCount", &count) == 3);
    CHECK(count == 5);
}

TEST_CASE_METHOD(Driver, "libcuda registers with a current context only: 201") {
    REQUIRE(cuda("cuInit", 0u) == 0);
    CHECK(add(0) == 201);
    CHECK(hps_contexts_created(-1) == 0);
    REQUIRE(cuda("cuDevicePrimaryCtxRetain", &context, 1) == 0);
    CHECK(hps_contexts_created(1) == 1);
    CHECK(current(cuda) == nullptr); // retaining does not make it current
    CHECK(add(0) == 201);
    REQUIRE(cuda("cuCtxPushCurrent_v2", context) == 0);
    CHECK(add(0) == 0);
    CHECK(add(0) == 712);
    void *popped = nullptr;
    CHECK(cuda("cuCtxPopCurrent_v2", &popped) == 0);
    CHECK(popped == context);
    CHECK(cuda("cuCtxPopCurrent_v2", &popped) == 201);
    CHECK(remove(0) == 0); // unregistering needs none
    CHECK(hps_last_error(nullptr) == 0);
}

TEST_CASE_METHOD(Driver, "libcuda: flags, device pointer, attributes of a pointer") {
    REQUIRE(cuda("cuInit", 0u) == 0);
    hps_set_current_context(1);
    REQUIRE(cuda("cuMemHostRegister_v2", memory.at(100), 2 * page, 1u) == 0);
    unsigned flags = 0;
    CHECK(cuda("cuMemHostGetFlags", &flags, memory.at(200)) == 0);
    CHECK(flags == 3);
    uint64_t device = 0;
    CHECK(cuda("cuMemHostGetDevicePointer_v2", &device, memory.at(200), 0u) == 0);
    CHECK(device == reinterpret_cast<uint64_t>(memory.at(200)));
    auto ask = [&](int attribute, auto value) {
        CHECK(cuda("cuPointerGetAttribute", &value, attribute, reinterpret_cast<uint64_t>(memory.at(200))) == 0);
        return value;
    };
    CHECK(ask(2, 0) == 1);
    CHECK(ask(3, uint64_t{0}) == device);
    CHECK(ask(4, static_cast<void *>(nullptr)) == memory.at(200));
    CHECK(ask(8, true) == false);
    CHECK(ask(9, -1) == 1);
    CHECK(ask(11, uint64_t{0}) == reinterpret_cast<uint64_t>(memory.at(100)));
    CHECK(ask(12, size_t{0}) == 2 * page);
    int untouched = 7;
    CHECK(cuda("cuPointerGetAttribute", &untouched, 999, reinterpret_cast<uint64_t>(memory.at(200))) == 1);
    CHECK(cuda("cuPointerGetAttribute", &untouched, 2, reinterpret_cast<uint64_t>(memory.at(mib / 2))) == 1);
    CHECK(untouched == 7);
}

TEST_CASE_METHOD(Driver, "libcuda: names of codes, unknown ones leave the pointer alone") {
    const char *text = nullptr;
    CHECK(cuda("cuGetErrorName", 712, &text) == 0);
    CHECK(std::string(text) == "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED");
    const char *before = text;
    CHECK(cuda("cuGetErrorName", 12345, &text) == 1);
    CHECK(cuda("cuGetErrorString", 12345, &text) == 1);
    CHECK(text == before);
    CHECK(cuda("cuGetErrorString", 2, &text) == 0);
    CHECK(std::string(text) == "out of memory");
}

TEST_CASE_METHOD(Driver, "cuGetProcAddress_v2 gives the same functions as dlsym, by names without a version") {
    void *function = nullptr;
    int status = 9;
    auto look_up = [&](const char *name) { return cuda("cuGetProcAddress_v2", name, &function, 12000, uint64_t{0}, &status); };
    CHECK(look_up("cuMemHostRegister") == 0);
    CHECK(status == 0);
    void *library = dlopen(runtime_file("cuda", "libcuda.so.1").c_str(), RTLD_NOW);
    CHECK(function == dlsym(library, "cuMemHostRegister_v2"));
    CHECK(look_up("cuNoSuchFunction") == 500);
    CHECK(status == 1);
    CHECK(function == nullptr);
    dlclose(library);
}

TEST_CASE_METHOD(Driver, "a runtime's register creates the context of the thread's device, once") {
    CHECK(v12("cudaHostRegister", memory.at(), page, 0u) == 0);
    CHECK(hps_contexts_created(0) == 1);
    CHECK(hps_current_context() == 0);
    std::thread([&] {
        CHECK(hps_current_context() == -1);
        CHECK(v12("cudaHostRegister", memory.at(page), page, 0u) == 0);
        CHECK(hps_current_context() == 0);
    }).join();
    CHECK(hps_contexts_created(-1) == 1);
    CHECK(v12("cudaHostUnregister", memory.at()) == 0);
    CHECK(v12("cudaHostUnregister", memory.at(page)) == 0);
}

TEST_CASE_METHOD(Driver, "which runtime calls create a context") {
    int value = 0;
    CHECK(v12("cudaGetDeviceCount", &value) == 0);
    CHECK(v12("cudaGetDevice", &value) == 0);
    CHECK(v12("cudaDeviceGetAttribute", &value, 99, 0) == 0);
    CHECK(v12("cudaGetLastError") == 0);
    CHECK(v12("cudaRuntimeGetVersion", &value) == 0);
    CHECK(hps_contexts_created(-1) == 0);
    CHECK(v12("cudaFree", static_cast<void *>(nullptr)) == 0);
    CHECK(hps_contexts_created(-1) == 1);
}

TEST_CASE_METHOD(Driver, "cudaSetDevice creates the context from 12 on, and only selects the device before") {
    CHECK(v11("cudaSetDevice", 1) == 0);
    CHECK(device_of(v11) == 1);
    CHECK(hps_contexts_created(-1) == 0);
    CHECK(v12("cudaSetDevice", 1) == 0);
    CHECK(hps_contexts_created(1) == 1);
    CHECK(hps_current_context() == 1);
    CHECK(v12("cudaSetDevice", 2) == 101);
    CHECK(device_of(v12) == 1);
    CHECK(v11("cudaSetDevice", 0) == 0);
    CHECK(hps_contexts_created(0) == 0);
    CHECK(device_of(v12) == 0);
}

TEST_CASE_METHOD(Driver, "the runtime's device follows the context that libcuda made current") {
    REQUIRE(cuda("cuInit", 0u) == 0);
    REQUIRE(cuda("cuDevicePrimaryCtxRetain", &context, 1) == 0);
    REQUIRE(cuda("cuCtxSetCurrent", context) == 0);
    CHECK(device_of(v12) == 1);
    CHECK(v12("cudaHostRegister", memory.at(), page, 0u) == 0);
    CHECK(hps_contexts_created(0) == 0);
    int device = -1;
    CHECK(cuda("cuCtxGetDevice", &device) == 0);
    CHECK(device == 1);
    CHECK(cuda("cuCtxSetCurrent", static_cast<void *>(nullptr)) == 0);
    CHECK(cuda("cuCtxGetDevice", &device) == 201);
    CHECK(device_of(v12) == 0);
}

TEST_CASE_METHOD(Driver, "state of the primary context, retained and released") {
    REQUIRE(cuda("cuInit", 0u) == 0);
    auto active = [&] {
        unsigned flags = 9;
        int value = 9;
        CHECK(cuda("cuDevicePrimaryCtxGetState", 0, &flags, &value) == 0);
        CHECK(flags == 0);
        CHECK(value == hps_context_active(0));
        return value;
    };
    CHECK(active() == 0);
    CHECK(cuda("cuDevicePrimaryCtxRelease_v2", 0) == 201);
    CHECK(cuda("cuDevicePrimaryCtxRetain", &context, 0) == 0);
    CHECK(cuda("cuDevicePrimaryCtxRetain", &context, 0) == 0);
    CHECK(hps_contexts_created(0) == 1);
    CHECK(cuda("cuDevicePrimaryCtxRelease_v2", 0) == 0);
    CHECK(active() == 1);
    CHECK(cuda("cuDevicePrimaryCtxRelease_v2", 0) == 0);
    CHECK(active() == 0);
    hps_activate_context(0);
    CHECK(active() == 1);
    CHECK(hps_contexts_created(0) == 1);
    CHECK(hps_current_context() == -1);
    unsigned flags;
    int value;
    CHECK(cuda("cuDevicePrimaryCtxGetState", 2, &flags, &value) == 101);
}

TEST_CASE_METHOD(Driver, "the runtimes keep the primary context that they use, whatever libcuda's users release") {
    CHECK(v12("cudaHostRegister", memory.at(), page, 0u) == 0);
    REQUIRE(cuda("cuDevicePrimaryCtxRetain", &context, 0) == 0);
    CHECK(cuda("cuDevicePrimaryCtxRelease_v2", 0) == 0);
    CHECK(hps_context_active(0) == 1);
    CHECK(hps_pinned(memory.at(), page) == HPS_ALL);
}

TEST_CASE_METHOD(Driver, "a destroyed context takes its registrations along: 713 afterwards") {
    hps_set_current_context(0);
    CHECK(v12("cudaHostRegister", memory.at(), page, 0u) == 0);
    hps_set_current_context(1);
    CHECK(v12("cudaHostRegister", memory.at(page), page, 0u) == 0);
    hps_destroy_context(0);
    CHECK(hps_context_active(0) == 0);
    CHECK(hps_pinned(memory.at(), page) == HPS_NONE);
    CHECK(hps_pinned(memory.at(page), page) == HPS_ALL);
    CHECK(v12("cudaHostUnregister", memory.at()) == 713);
    CHECK(v12("cudaHostUnregister", memory.at(page)) == 0);
    CHECK(v12("cudaHostUnregister", memory.at(page)) == 713);
}

TEST_CASE_METHOD(Driver, "after_destroy gives another code for what went with its context") {
    REQUIRE(hps_script("after_destroy=709") == 0);
    CHECK(v12("cudaHostRegister", memory.at(), page, 0u) == 0);
    CHECK(v12("cudaDeviceReset") == 0);
    CHECK(v12("cudaHostUnregister", memory.at()) == 709);
    CHECK(v12("cudaHostUnregister", memory.at(page)) == 713);
    CHECK(v12("cudaHostRegister", memory.at(), page, 0u) == 0);
    CHECK(v12("cudaHostUnregister", memory.at()) == 0);
    CHECK(v12("cudaHostUnregister", memory.at()) == 713);
}

TEST_CASE_METHOD(Driver, "with a destroyed context current libcuda answers 709, and a runtime makes a new one") {
    CHECK(v12("cudaFree", static_cast<void *>(nullptr)) == 0);
    REQUIRE(cuda("cuDevicePrimaryCtxReset_v2", 0) == 0);
    CHECK(current(cuda) != nullptr);
    CHECK(add(0) == 709);
    CHECK(remove(0) == 709);
    CHECK(cuda("cuCtxSetCurrent", current(cuda)) == 709);
    CHECK(v12("cudaHostRegister", memory.at(), page, 0u) == 0);
    CHECK(hps_contexts_created(0) == 2);
    CHECK(add(page) == 0);
}

TEST_CASE_METHOD(Driver, "contexts that the program created are not the primary one") {
    REQUIRE(cuda("cuInit", 0u) == 0);
    CHECK(cuda("cuCtxCreate_v2", &context, 0u, 1) == 0);
    CHECK(current(cuda) == context);
    CHECK(hps_context_active(1) == 0);
    CHECK(hps_contexts_created(-1) == 0);
    CHECK(add(0) == 0);
    CHECK(cuda("cuCtxDestroy_v2", context) == 0);
    CHECK(current(cuda) == nullptr);
    CHECK(hps_pinned(memory.at(), page) == HPS_NONE);
    CHECK(cuda("cuCtxPushCurrent_v2", context) == 709);
    CHECK(cuda("cuCtxPushCurrent_v2", static_cast<void *>(&context)) == 201);
    CHECK(remove(0) == 713);
}

TEST_CASE_METHOD(Driver, "setting the context replaces the one on top, and leaves those below") {
    REQUIRE(cuda("cuInit", 0u) == 0);
    void *first = nullptr, *second = nullptr;
    REQUIRE(cuda("cuDevicePrimaryCtxRetain", &first, 0) == 0);
    REQUIRE(cuda("cuDevicePrimaryCtxRetain", &second, 1) == 0);
    CHECK(cuda("cuCtxPushCurrent_v2", first) == 0);
    CHECK(cuda("cuCtxPushCurrent_v2", first) == 0);
    CHECK(cuda("cuCtxSetCurrent", second) == 0);
    CHECK(current(cuda) == second);
    CHECK(cuda("cuCtxPopCurrent_v2", &context) == 0);
    CHECK(current(cuda) == first);
}

TEST_CASE_METHOD(Driver, "capture mode through libcuda") {
    REQUIRE(cuda("cuInit", 0u) == 0);
    hps_set_current_context(0);
    std::thread([&] { hps_capture_begin(HPS_CAPTURE_GLOBAL); }).join();
    CHECK(add(0) == 900);
    int mode = HPS_CAPTURE_RELAXED;
    CHECK(cuda("cuThreadExchangeStreamCaptureMode", &mode) == 0);
    CHECK(add(0) == 0);
}
