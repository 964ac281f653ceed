// The parts of CUDA's runtime and driver API that are called: types of the functions and values of the constants, all
// unchanged from CUDA 11 to 13. Enumerations are int and handles are void *, as the calling convention has them.
#pragma once
#include <cstddef>

namespace hp::cuda {

// Runtime API
using HostRegister = int(void *ptr, size_t size, unsigned flags);
using HostUnregister = int(void *ptr);
using HostGetDevicePointer = int(void **device, void *host, unsigned flags);
using GetLastError = int();
using PeekAtLastError = int();
using GetDeviceCount = int(int *count);
using GetDevice = int(int *device);
using SetDevice = int(int device);
using DeviceGetAttribute = int(int *value, int attribute, int device);
using PointerGetAttributes = int(void *attributes, const void *ptr);
using GetErrorName = const char *(int error);
using RuntimeGetVersion = int(int *version);
using DriverGetVersion = int(int *version);
using ThreadExchangeStreamCaptureMode = int(int *mode);

// Driver API
using Init = int(unsigned flags);
using DeviceGetCount = int(int *count);
using DeviceGet = int(int *device, int ordinal);
using DriverDeviceGetAttribute = int(int *value, int attribute, int device);
using MemHostRegister = int(void *ptr, size_t size, unsigned flags);
using MemHostUnregister = int(void *ptr);
using MemHostGetDevicePointer = int(unsigned long long *device, void *host, unsigned flags);
using PointerGetAttribute = int(void *value, int attribute, unsigned long long ptr);
using CtxGetCurrent = int(void **context);
using CtxPushCurrent = int(void *context);
using CtxPopCurrent = int(void **context);
using DevicePrimaryCtxGetState = int(int device, unsigned *flags, int *active);
using DevicePrimaryCtxRetain = int(void **context, int device);
using DevicePrimaryCtxRelease = int(int device);
using DriverGetErrorName = int(int error, const char **name);

enum : unsigned { kRegisterPortable = 1, kRegisterMapped = 2, kRegisterIoMemory = 4, kRegisterReadOnly = 8 };
enum : int {
  kAttributeCanUseHostPointerForRegisteredMem = 91,
  kAttributeHostRegisterSupported = 99,
  kAttributeHostRegisterReadOnlySupported = 113,
};
enum : int { kMemoryTypeHost = 1 };            // both APIs
enum : int { kPointerAttributeMemoryType = 2 };  // driver API
enum : int { kCaptureModeRelaxed = 2 };
enum : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kMemoryAllocation = 2,
  kInitializationError = 3,
  kCudartUnloading = 4,
  kStubLibrary = 34,
  kInsufficientDriver = 35,
  kCallRequiresNewerDriver = 36,
  kDevicesUnavailable = 46,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kSoftwareValidityNotEstablished = 103,
  kStartupFailure = 127,
  kDeviceUninitialized = 201,
  kIllegalAddress = 700,
  kContextIsDestroyed = 709,
  kAssert = 710,
  kHostMemoryAlreadyRegistered = 712,
  kHostMemoryNotRegistered = 713,
  kHardwareStackError = 714,
  kLaunchFailure = 719,
  kTensorMemoryLeak = 721,
  kNotPermitted = 800,
  kNotSupported = 801,
  kSystemNotReady = 802,
  kSystemDriverMismatch = 803,
  kCompatNotSupportedOnDevice = 804,
  kStreamCaptureUnsupported = 900,
  kStreamCaptureWrongThread = 908,
  kUnknown = 999,
};

// A structure whose size differs between releases: room enough for all, type first.
struct PointerAttributes {
  int type;
  int device;
  void *rest[62];
};

}  // namespace hp::cuda
