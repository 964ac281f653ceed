// Names of the codes. The texts are our own; the names are the vendors' enumerators.
#include <algorithm>
#include <iterator>

#include "driver.h"

namespace sim {

namespace {

struct Names {
    int code;
    const char *cudart, *cuda, *hip, *text;
};

constexpr Names names[] = {
    {0, "cudaSuccess", "CUDA_SUCCESS", "hipSuccess", "no error"},
    {1, "cudaErrorInvalidValue", "CUDA_ERROR_INVALID_VALUE", "hipErrorInvalidValue", "invalid argument"},
    {2, "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "hipErrorOutOfMemory", "out of memory"},
    {3, "cudaErrorInitializationError", "CUDA_ERROR_NOT_INITIALIZED", "hipErrorNotInitialized", "not initialized"},
    {4, "cudaErrorCudartUnloading", "CUDA_ERROR_DEINITIALIZED", "hipErrorDeinitialized", "shutting down"},
    {34, "cudaErrorStubLibrary", "CUDA_ERROR_STUB_LIBRARY", nullptr, "stub library in place of the driver"},
    {35, "cudaErrorInsufficientDriver", nullptr, "hipErrorInsufficientDriver", "driver missing or too old"},
    {36, "cudaErrorCallRequiresNewerDriver", nullptr, nullptr, "the call needs a newer driver"},
    {46, "cudaErrorDevicesUnavailable", "CUDA_ERROR_DEVICE_UNAVAILABLE", nullptr, "devices are busy or unavailable"},
    {100, "cudaErrorNoDevice", "CUDA_ERROR_NO_DEVICE", "hipErrorNoDevice", "no device"},
    {101, "cudaErrorInvalidDevice", "CUDA_ERROR_INVALID_DEVICE", "hipErrorInvalidDevice", "no such device"},
    {201, "cudaErrorDeviceUninitialized", "CUDA_ERROR_INVALID_CONTEXT", "hipErrorInvalidContext", "no valid context"},
    {304, "cudaErrorOperatingSystem", "CUDA_ERROR_OPERATING_SYSTEM", "hipErrorOperatingSystem", "the operating system refused"},
    {500, "cudaErrorSymbolNotFound", "CUDA_ERROR_NOT_FOUND", "hipErrorNotFound", "not found"},
    {700, "cudaErrorIllegalAddress", "CUDA_ERROR_ILLEGAL_ADDRESS", "hipErrorIllegalAddress", "illegal address on the device"},
    {709, "cudaErrorContextIsDestroyed", "CUDA_ERROR_CONTEXT_IS_DESTROYED", "hipErrorContextIsDestroyed", "context is destroyed"},
    {712, "cudaErrorHostMemoryAlreadyRegistered", "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "hipErrorHostMemoryAlreadyRegistered", "memory already registered"},
    {713, "cudaErrorHostMemoryNotRegistered", "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "hipErrorHostMemoryNotRegistered",
     "memory not registered"},
    {719, "cudaErrorLaunchFailure", "CUDA_ERROR_LAUNCH_FAILED", "hipErrorLaunchFailure", "launch failed"},
    {800, "cudaErrorNotPermitted", "CUDA_ERROR_NOT_PERMITTED", nullptr, "not permitted"},
    {801, "cudaErrorNotSupported", "CUDA_ERROR_NOT_SUPPORTED", "hipErrorNotSupported", "not supported"},
    {802, "cudaErrorSystemNotReady", "CUDA_ERROR_SYSTEM_NOT_READY", nullptr, "system not ready"},
    {803, "cudaErrorSystemDriverMismatch", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", nullptr, "system driver mismatch"},
    {900, "cudaErrorStreamCaptureUnsupported", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "hipErrorStreamCaptureUnsupported",
     "not allowed while a stream is capturing"},
    {901, "cudaErrorStreamCaptureInvalidated", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "hipErrorStreamCaptureInvalidated",
     "the capture was broken by an earlier call"},
    {999, "cudaErrorUnknown", "CUDA_ERROR_UNKNOWN", "hipErrorUnknown", "unknown error"},
};

const Names *find(int code) {
    auto found = std::ranges::find(names, code, &Names::code);
    return found == std::end(names) ? nullptr : found;
}

} // namespace

const char *code_name(Vendor vendor, int code) {
    const Names *found = find(code);
    if (!found) return nullptr;
    return vendor == Vendor::cuda ? found->cudart : found->hip;
}

const char *driver_code_name(int code) {
    const Names *found = find(code);
    return found ? found->cuda : nullptr;
}

const char *code_text(int code) {
    const Names *found = find(code);
    return found ? found->text : nullptr;
}

} // namespace sim
