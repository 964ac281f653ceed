// The part of Level Zero's binary interface that is used here, written down once more so that no vendor header is needed
// to build. Names follow Level Zero's without their prefix: ze::MemAllocHost is the type of zeMemAllocHost.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hp::ze {

using Result = uint32_t;

constexpr Result kSuccess = 0;
constexpr Result kDeviceLost = 0x70000001;
constexpr Result kOutOfHostMemory = 0x70000002;
constexpr Result kOutOfDeviceMemory = 0x70000003;
constexpr Result kInsufficientPermissions = 0x70010000;
constexpr Result kNotAvailable = 0x70010001;
constexpr Result kDependencyUnavailable = 0x70020000;
constexpr Result kUninitialized = 0x78000001;
constexpr Result kUnsupportedVersion = 0x78000002;
constexpr Result kUnsupportedFeature = 0x78000003;
constexpr Result kInvalidArgument = 0x78000004;
constexpr Result kInvalidNullHandle = 0x78000005;
constexpr Result kHandleObjectInUse = 0x78000006;
constexpr Result kInvalidNullPointer = 0x78000007;
constexpr Result kInvalidSize = 0x78000008;
constexpr Result kUnsupportedSize = 0x78000009;
constexpr Result kUnsupportedAlignment = 0x7800000a;
constexpr Result kInvalidEnumeration = 0x7800000c;
constexpr Result kUnsupportedEnumeration = 0x7800000d;
constexpr Result kOverlappingRegions = 0x7800001a;
constexpr Result kAddressNotFound = 0x78000021;  // newer than Debian 12's headers
constexpr Result kUnknown = 0x7ffffffe;

constexpr uint32_t kInitGpuOnly = 0x1;  // ze_init_flags_t
constexpr uint32_t kDriverTypeGpu = 0x1;  // ze_init_driver_type_flags_t
constexpr uint32_t kDeviceTypeGpu = 1;  // ze_device_type_t
constexpr uint32_t kMemoryTypeUnknown = 0;  // ze_memory_type_t
constexpr uint32_t kHostMemReadOnly = 0x10;  // ze_host_mem_alloc_flags_t
constexpr uint32_t kHandleDriver = 0;  // zel_handle_type_t

// ze_structure_type_t
constexpr uint32_t kStypeDriverProperties = 0x1;
constexpr uint32_t kStypeDeviceProperties = 0x3;
constexpr uint32_t kStypeContextDesc = 0xd;
constexpr uint32_t kStypeHostMemAllocDesc = 0x16;
constexpr uint32_t kStypeMemoryAllocationProperties = 0x17;
constexpr uint32_t kStypeInitDriverTypeDesc = 0x20021;
constexpr uint32_t kStypeMemmapDesc = 0x20037;

constexpr const char *kMemmapExtension = "ZE_extension_external_memmap_sysmem";
constexpr uint32_t kMemmapVersion = 0x10000;

// The loader may hand out wrappers around the drivers' handles. Functions that come from a driver itself crash on them, so
// the two are different types.
using DriverHandle = struct LoaderDriver *;
using OwnDriverHandle = struct OwnDriver *;
using DeviceHandle = struct Device *;
using ContextHandle = struct Context *;

struct InitDriverTypeDesc {
  uint32_t stype;
  const void *next;
  uint32_t flags;
};

struct DriverProperties {
  uint32_t stype;
  void *next;
  uint8_t uuid[16];
  uint32_t driver_version;  // major, minor and build in 8, 8 and 16 bits
};

struct DriverExtensionProperties {
  char name[256];
  uint32_t version;
};

struct DeviceProperties {
  uint32_t stype;
  void *next;
  uint32_t type;
  uint32_t vendor_id;
  uint32_t device_id;
  uint32_t flags;
  uint32_t subdevice_id;
  uint32_t core_clock_rate;
  uint64_t max_mem_alloc_size;
  uint8_t rest[320];
};

struct ContextDesc {
  uint32_t stype;
  const void *next;
  uint32_t flags;
};

struct HostMemAllocDesc {
  uint32_t stype;
  const void *next;
  uint32_t flags;
};

// ze_external_memmap_sysmem_ext_desc_t of Level Zero 1.14.
struct MemmapDesc {
  uint32_t stype;
  const void *next;
  void *memory;
  uint64_t size;
};

struct MemoryAllocationProperties {
  uint32_t stype;
  void *next;
  uint32_t type;
  uint64_t id;
  uint64_t page_size;
};

struct ComponentVersion {
  char name[64];
  uint32_t spec_version;
  int32_t major;
  int32_t minor;
  int32_t patch;
};

static_assert(sizeof(InitDriverTypeDesc) == 24 && offsetof(InitDriverTypeDesc, flags) == 16);
static_assert(sizeof(DriverProperties) == 40 && offsetof(DriverProperties, driver_version) == 32);
static_assert(sizeof(DriverExtensionProperties) == 260 && offsetof(DriverExtensionProperties, version) == 256);
static_assert(sizeof(DeviceProperties) == 368 && offsetof(DeviceProperties, type) == 16 &&
              offsetof(DeviceProperties, max_mem_alloc_size) == 40);
static_assert(sizeof(ContextDesc) == 24 && offsetof(ContextDesc, flags) == 16);
static_assert(sizeof(HostMemAllocDesc) == 24 && offsetof(HostMemAllocDesc, flags) == 16);
static_assert(sizeof(MemmapDesc) == 32 && offsetof(MemmapDesc, memory) == 16 && offsetof(MemmapDesc, size) == 24);
static_assert(sizeof(MemoryAllocationProperties) == 40 && offsetof(MemoryAllocationProperties, type) == 16);
static_assert(sizeof(ComponentVersion) == 80 && offsetof(ComponentVersion, major) == 68);

using Init = Result (*)(uint32_t flags);
using InitDrivers = Result (*)(uint32_t *count, DriverHandle *drivers, InitDriverTypeDesc *desc);
using DriverGet = Result (*)(uint32_t *count, DriverHandle *drivers);
using DriverGetProperties = Result (*)(DriverHandle, DriverProperties *);
using DriverGetExtensionProperties = Result (*)(DriverHandle, uint32_t *count, DriverExtensionProperties *);
using DriverGetExtensionFunctionAddress = Result (*)(DriverHandle, const char *name, void **function);
using DeviceGet = Result (*)(DriverHandle, uint32_t *count, DeviceHandle *devices);
using DeviceGetProperties = Result (*)(DeviceHandle, DeviceProperties *);
using ContextCreate = Result (*)(DriverHandle, const ContextDesc *, ContextHandle *);
using MemAllocHost = Result (*)(ContextHandle, const HostMemAllocDesc *, size_t size, size_t alignment, void **out);
using MemFree = Result (*)(ContextHandle, void *);
using MemGetAllocProperties = Result (*)(ContextHandle, const void *, MemoryAllocationProperties *, DeviceHandle *);
using MemGetAddressRange = Result (*)(ContextHandle, const void *, void **base, size_t *size);

// The loader's own.
using LoaderTranslateHandle = Result (*)(uint32_t type, void *in, void **out);
using LoaderGetVersions = Result (*)(size_t *count, ComponentVersion *versions);
using CheckIsLoaderInTearDown = bool (*)();

// Of a driver, by zeDriverGetExtensionFunctionAddress.
using ImportExternalPointer = Result (*)(OwnDriverHandle, void *, size_t);
using ReleaseImportedPointer = Result (*)(OwnDriverHandle, void *);
using GetHostPointerBaseAddress = Result (*)(OwnDriverHandle, void *, void **base);

}  // namespace hp::ze
