// Holds hip_abi.h, and the claim that HIP's functions have the shapes of CUDA's, against HIP's own header.
#include "cuda_abi.h"
#include "hip_abi.h"
#include "vendor_abi.h"

#include <hip/hip_runtime_api.h>

namespace {

using namespace hp;

static_assert(vendor::same_function<cuda::HostRegister>(hipHostRegister));
static_assert(vendor::same_function<cuda::HostUnregister>(hipHostUnregister));
static_assert(vendor::same_function<cuda::HostGetDevicePointer>(hipHostGetDevicePointer));
static_assert(vendor::same_function<cuda::GetLastError>(hipGetLastError));
static_assert(vendor::same_function<cuda::PeekAtLastError>(hipPeekAtLastError));
static_assert(vendor::same_function<cuda::GetDeviceCount>(hipGetDeviceCount));
static_assert(vendor::same_function<cuda::GetDevice>(hipGetDevice));
static_assert(vendor::same_function<cuda::SetDevice>(hipSetDevice));
static_assert(vendor::same_function<cuda::DeviceGetAttribute>(hipDeviceGetAttribute));
static_assert(vendor::same_function<cuda::GetErrorName>(hipGetErrorName));
static_assert(vendor::same_function<cuda::RuntimeGetVersion>(hipRuntimeGetVersion));
static_assert(vendor::same_function<cuda::DriverGetVersion>(hipDriverGetVersion));
static_assert(vendor::same_function<cuda::ThreadExchangeStreamCaptureMode>(hipThreadExchangeStreamCaptureMode));
static_assert(vendor::same_function<int(hipPointerAttribute_t *, const void *)>(hipPointerGetAttributes));
static_assert(sizeof(cuda::PointerAttributes) >= sizeof(hipPointerAttribute_t));

static_assert(hip::kRegisterPortable == hipHostRegisterPortable);
static_assert(hip::kRegisterMapped == hipHostRegisterMapped);
static_assert(hip::kRegisterIoMemory == hipHostRegisterIoMemory);
static_assert(hip::kRegisterCoarseGrained == hipExtHostRegisterCoarseGrained);
static_assert(HIP_VERSION / hip::kVersionsPerMajor == HIP_VERSION_MAJOR);
static_assert(hip::kRuntimeMemory == int{hipErrorRuntimeMemory});
static_assert(hip::kRuntimeOther == int{hipErrorRuntimeOther});
static_assert(cuda::kCaptureModeRelaxed == int{hipStreamCaptureModeRelaxed});

// Codes that HIP shares with CUDA.
static_assert(cuda::kSuccess == int{hipSuccess});
static_assert(cuda::kInvalidValue == int{hipErrorInvalidValue});
static_assert(cuda::kMemoryAllocation == int{hipErrorOutOfMemory});
static_assert(cuda::kInitializationError == int{hipErrorNotInitialized});
static_assert(cuda::kCudartUnloading == int{hipErrorDeinitialized});
static_assert(cuda::kInsufficientDriver == int{hipErrorInsufficientDriver});
static_assert(cuda::kNoDevice == int{hipErrorNoDevice});
static_assert(cuda::kInvalidDevice == int{hipErrorInvalidDevice});
static_assert(cuda::kDeviceUninitialized == int{hipErrorInvalidContext});
static_assert(cuda::kIllegalAddress == int{hipErrorIllegalAddress});
static_assert(cuda::kContextIsDestroyed == int{hipErrorContextIsDestroyed});
static_assert(cuda::kAssert == int{hipErrorAssert});
static_assert(cuda::kHostMemoryAlreadyRegistered == int{hipErrorHostMemoryAlreadyRegistered});
static_assert(cuda::kHostMemoryNotRegistered == int{hipErrorHostMemoryNotRegistered});
static_assert(cuda::kLaunchFailure == int{hipErrorLaunchFailure});
static_assert(cuda::kNotSupported == int{hipErrorNotSupported});
static_assert(cuda::kStreamCaptureUnsupported == int{hipErrorStreamCaptureUnsupported});
static_assert(cuda::kStreamCaptureWrongThread == int{hipErrorStreamCaptureWrongThread});
static_assert(cuda::kUnknown == int{hipErrorUnknown});

} // namespace
