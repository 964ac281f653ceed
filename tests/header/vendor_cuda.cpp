// Holds cuda_abi.h against the headers of one CUDA release.
#include "cuda_abi.h"
#include "vendor_abi.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>

namespace {

using namespace hp::cuda;

static_assert(vendor::same_function<HostRegister>(cudaHostRegister));
static_assert(vendor::same_function<HostUnregister>(cudaHostUnregister));
static_assert(vendor::same_function<HostGetDevicePointer>(cudaHostGetDevicePointer));
static_assert(vendor::same_function<GetLastError>(cudaGetLastError));
static_assert(vendor::same_function<PeekAtLastError>(cudaPeekAtLastError));
static_assert(vendor::same_function<GetDeviceCount>(cudaGetDeviceCount));
static_assert(vendor::same_function<GetDevice>(cudaGetDevice));
static_assert(vendor::same_function<SetDevice>(cudaSetDevice));
static_assert(vendor::same_function<DeviceGetAttribute>(cudaDeviceGetAttribute));
static_assert(vendor::same_function<GetErrorName>(cudaGetErrorName));
static_assert(vendor::same_function<RuntimeGetVersion>(cudaRuntimeGetVersion));
static_assert(vendor::same_function<DriverGetVersion>(cudaDriverGetVersion));
static_assert(vendor::same_function<ThreadExchangeStreamCaptureMode>(cudaThreadExchangeStreamCaptureMode));

// The structure that the runtime fills: ours is larger than any release's, and begins alike.
static_assert(vendor::same_function<int(cudaPointerAttributes *, const void *)>(cudaPointerGetAttributes));
static_assert(vendor::SameAbi<int (*)(void *, const void *), PointerGetAttributes *>::value);
static_assert(sizeof(PointerAttributes) >= sizeof(cudaPointerAttributes));
static_assert(offsetof(PointerAttributes, type) == offsetof(cudaPointerAttributes, type));
static_assert(sizeof(PointerAttributes::type) == sizeof(cudaPointerAttributes::type));

static_assert(vendor::same_function<Init>(cuInit));
static_assert(vendor::same_function<DeviceGetCount>(cuDeviceGetCount));
static_assert(vendor::same_function<DeviceGet>(cuDeviceGet));
static_assert(vendor::same_function<DriverDeviceGetAttribute>(cuDeviceGetAttribute));
static_assert(vendor::same_function<MemHostRegister>(cuMemHostRegister));
static_assert(vendor::same_function<MemHostUnregister>(cuMemHostUnregister));
static_assert(vendor::same_function<MemHostGetDevicePointer>(cuMemHostGetDevicePointer));
static_assert(vendor::same_function<PointerGetAttribute>(cuPointerGetAttribute));
static_assert(vendor::same_function<CtxGetCurrent>(cuCtxGetCurrent));
static_assert(vendor::same_function<CtxPushCurrent>(cuCtxPushCurrent));
static_assert(vendor::same_function<CtxPopCurrent>(cuCtxPopCurrent));
static_assert(vendor::same_function<DevicePrimaryCtxGetState>(cuDevicePrimaryCtxGetState));
static_assert(vendor::same_function<DevicePrimaryCtxRetain>(cuDevicePrimaryCtxRetain));
static_assert(vendor::same_function<DevicePrimaryCtxRelease>(cuDevicePrimaryCtxRelease));
static_assert(vendor::same_function<DriverGetErrorName>(cuGetErrorName));

static_assert(kRegisterPortable == cudaHostRegisterPortable && kRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(kRegisterMapped == cudaHostRegisterMapped && kRegisterMapped == CU_MEMHOSTREGISTER_DEVICEMAP);
static_assert(kRegisterIoMemory == cudaHostRegisterIoMemory && kRegisterIoMemory == CU_MEMHOSTREGISTER_IOMEMORY);
static_assert(kRegisterReadOnly == cudaHostRegisterReadOnly && kRegisterReadOnly == CU_MEMHOSTREGISTER_READ_ONLY);

static_assert(kAttributeCanUseHostPointerForRegisteredMem == int{cudaDevAttrCanUseHostPointerForRegisteredMem} &&
              kAttributeCanUseHostPointerForRegisteredMem ==
                  int{CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM});
static_assert(kAttributeHostRegisterSupported == int{cudaDevAttrHostRegisterSupported} &&
              kAttributeHostRegisterSupported == int{CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED});
static_assert(kAttributeHostRegisterReadOnlySupported == int{cudaDevAttrHostRegisterReadOnlySupported} &&
              kAttributeHostRegisterReadOnlySupported == int{CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED});
static_assert(kMemoryTypeHost == int{cudaMemoryTypeHost} && kMemoryTypeHost == int{CU_MEMORYTYPE_HOST});
static_assert(kPointerAttributeMemoryType == int{CU_POINTER_ATTRIBUTE_MEMORY_TYPE});
static_assert(kCaptureModeRelaxed == int{cudaStreamCaptureModeRelaxed});

// The runtime's number and the driver's are one.
constexpr bool is(int ours, cudaError_t runtime, CUresult driver) { return ours == runtime && ours == driver; }

static_assert(is(kSuccess, cudaSuccess, CUDA_SUCCESS));
static_assert(is(kInvalidValue, cudaErrorInvalidValue, CUDA_ERROR_INVALID_VALUE));
static_assert(is(kMemoryAllocation, cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY));
static_assert(is(kInitializationError, cudaErrorInitializationError, CUDA_ERROR_NOT_INITIALIZED));
static_assert(is(kCudartUnloading, cudaErrorCudartUnloading, CUDA_ERROR_DEINITIALIZED));
static_assert(is(kStubLibrary, cudaErrorStubLibrary, CUDA_ERROR_STUB_LIBRARY));
static_assert(is(kNoDevice, cudaErrorNoDevice, CUDA_ERROR_NO_DEVICE));
static_assert(is(kInvalidDevice, cudaErrorInvalidDevice, CUDA_ERROR_INVALID_DEVICE));
static_assert(is(kDeviceUninitialized, cudaErrorDeviceUninitialized, CUDA_ERROR_INVALID_CONTEXT));
static_assert(is(kIllegalAddress, cudaErrorIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS));
static_assert(is(kContextIsDestroyed, cudaErrorContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED));
static_assert(is(kAssert, cudaErrorAssert, CUDA_ERROR_ASSERT));
static_assert(is(kHostMemoryAlreadyRegistered, cudaErrorHostMemoryAlreadyRegistered,
                 CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED));
static_assert(is(kHostMemoryNotRegistered, cudaErrorHostMemoryNotRegistered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED));
static_assert(is(kHardwareStackError, cudaErrorHardwareStackError, CUDA_ERROR_HARDWARE_STACK_ERROR));
static_assert(is(kLaunchFailure, cudaErrorLaunchFailure, CUDA_ERROR_LAUNCH_FAILED));
static_assert(is(kNotPermitted, cudaErrorNotPermitted, CUDA_ERROR_NOT_PERMITTED));
static_assert(is(kNotSupported, cudaErrorNotSupported, CUDA_ERROR_NOT_SUPPORTED));
static_assert(is(kSystemNotReady, cudaErrorSystemNotReady, CUDA_ERROR_SYSTEM_NOT_READY));
static_assert(is(kSystemDriverMismatch, cudaErrorSystemDriverMismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH));
static_assert(is(kCompatNotSupportedOnDevice, cudaErrorCompatNotSupportedOnDevice,
                 CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE));
static_assert(is(kStreamCaptureUnsupported, cudaErrorStreamCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
static_assert(is(kStreamCaptureWrongThread, cudaErrorStreamCaptureWrongThread, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD));
static_assert(is(kUnknown, cudaErrorUnknown, CUDA_ERROR_UNKNOWN));

// Only the runtime has these, and releases before 12 lack the last.
static_assert(kInsufficientDriver == int{cudaErrorInsufficientDriver});
static_assert(kCallRequiresNewerDriver == int{cudaErrorCallRequiresNewerDriver});
static_assert(kDevicesUnavailable == int{cudaErrorDevicesUnavailable});
static_assert(kSoftwareValidityNotEstablished == int{cudaErrorSoftwareValidityNotEstablished});
static_assert(kStartupFailure == int{cudaErrorStartupFailure});
#if CUDART_VERSION >= 12000
static_assert(kTensorMemoryLeak == int{cudaErrorTensorMemoryLeak});
#endif

} // namespace
