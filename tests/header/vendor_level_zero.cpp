// Holds level_zero_abi.h against Level Zero's own headers. Debian 12 has 1.8: what came after it is not here to compare
// with.
#include "level_zero_abi.h"
#include "vendor_abi.h"

#include <level_zero/loader/ze_loader.h>
#include <level_zero/ze_api.h>

#include <cstddef>

namespace {

using namespace hp::ze;

static_assert(kSuccess == ZE_RESULT_SUCCESS);
static_assert(kDeviceLost == ZE_RESULT_ERROR_DEVICE_LOST);
static_assert(kOutOfHostMemory == ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
static_assert(kOutOfDeviceMemory == ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
static_assert(kInsufficientPermissions == ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS);
static_assert(kNotAvailable == ZE_RESULT_ERROR_NOT_AVAILABLE);
static_assert(kDependencyUnavailable == ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
static_assert(kUninitialized == ZE_RESULT_ERROR_UNINITIALIZED);
static_assert(kUnsupportedVersion == ZE_RESULT_ERROR_UNSUPPORTED_VERSION);
static_assert(kUnsupportedFeature == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
static_assert(kInvalidArgument == ZE_RESULT_ERROR_INVALID_ARGUMENT);
static_assert(kInvalidNullHandle == ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
static_assert(kHandleObjectInUse == ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
static_assert(kInvalidNullPointer == ZE_RESULT_ERROR_INVALID_NULL_POINTER);
static_assert(kInvalidSize == ZE_RESULT_ERROR_INVALID_SIZE);
static_assert(kUnsupportedSize == ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
static_assert(kUnsupportedAlignment == ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
static_assert(kInvalidEnumeration == ZE_RESULT_ERROR_INVALID_ENUMERATION);
static_assert(kUnsupportedEnumeration == ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
static_assert(kOverlappingRegions == ZE_RESULT_ERROR_OVERLAPPING_REGIONS);
static_assert(kUnknown == ZE_RESULT_ERROR_UNKNOWN);

static_assert(kInitGpuOnly == ZE_INIT_FLAG_GPU_ONLY);
static_assert(kDeviceTypeGpu == ZE_DEVICE_TYPE_GPU);
static_assert(kMemoryTypeUnknown == ZE_MEMORY_TYPE_UNKNOWN);
static_assert(kHandleDriver == ZEL_HANDLE_DRIVER);

static_assert(kStypeDriverProperties == ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES);
static_assert(kStypeDeviceProperties == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES);
static_assert(kStypeContextDesc == ZE_STRUCTURE_TYPE_CONTEXT_DESC);
static_assert(kStypeHostMemAllocDesc == ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC);
static_assert(kStypeMemoryAllocationProperties == ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES);

static_assert(sizeof(DriverProperties) == sizeof(ze_driver_properties_t));
static_assert(offsetof(DriverProperties, stype) == offsetof(ze_driver_properties_t, stype));
static_assert(offsetof(DriverProperties, next) == offsetof(ze_driver_properties_t, pNext));
static_assert(offsetof(DriverProperties, uuid) == offsetof(ze_driver_properties_t, uuid));
static_assert(offsetof(DriverProperties, driver_version) == offsetof(ze_driver_properties_t, driverVersion));

static_assert(sizeof(DriverExtensionProperties) == sizeof(ze_driver_extension_properties_t));
static_assert(offsetof(DriverExtensionProperties, name) == offsetof(ze_driver_extension_properties_t, name));
static_assert(offsetof(DriverExtensionProperties, version) == offsetof(ze_driver_extension_properties_t, version));

static_assert(sizeof(DeviceProperties) == sizeof(ze_device_properties_t));
static_assert(offsetof(DeviceProperties, stype) == offsetof(ze_device_properties_t, stype));
static_assert(offsetof(DeviceProperties, next) == offsetof(ze_device_properties_t, pNext));
static_assert(offsetof(DeviceProperties, type) == offsetof(ze_device_properties_t, type));
static_assert(offsetof(DeviceProperties, vendor_id) == offsetof(ze_device_properties_t, vendorId));
static_assert(offsetof(DeviceProperties, device_id) == offsetof(ze_device_properties_t, deviceId));
static_assert(offsetof(DeviceProperties, flags) == offsetof(ze_device_properties_t, flags));
static_assert(offsetof(DeviceProperties, max_mem_alloc_size) == offsetof(ze_device_properties_t, maxMemAllocSize));

static_assert(sizeof(ContextDesc) == sizeof(ze_context_desc_t));
static_assert(offsetof(ContextDesc, stype) == offsetof(ze_context_desc_t, stype));
static_assert(offsetof(ContextDesc, next) == offsetof(ze_context_desc_t, pNext));
static_assert(offsetof(ContextDesc, flags) == offsetof(ze_context_desc_t, flags));

static_assert(sizeof(HostMemAllocDesc) == sizeof(ze_host_mem_alloc_desc_t));
static_assert(offsetof(HostMemAllocDesc, stype) == offsetof(ze_host_mem_alloc_desc_t, stype));
static_assert(offsetof(HostMemAllocDesc, next) == offsetof(ze_host_mem_alloc_desc_t, pNext));
static_assert(offsetof(HostMemAllocDesc, flags) == offsetof(ze_host_mem_alloc_desc_t, flags));

static_assert(sizeof(MemoryAllocationProperties) == sizeof(ze_memory_allocation_properties_t));
static_assert(offsetof(MemoryAllocationProperties, stype) == offsetof(ze_memory_allocation_properties_t, stype));
static_assert(offsetof(MemoryAllocationProperties, next) == offsetof(ze_memory_allocation_properties_t, pNext));
static_assert(offsetof(MemoryAllocationProperties, type) == offsetof(ze_memory_allocation_properties_t, type));
static_assert(offsetof(MemoryAllocationProperties, id) == offsetof(ze_memory_allocation_properties_t, id));
static_assert(offsetof(MemoryAllocationProperties, page_size) == offsetof(ze_memory_allocation_properties_t, pageSize));

static_assert(sizeof(ComponentVersion) == sizeof(zel_component_version_t));
static_assert(offsetof(ComponentVersion, name) == offsetof(zel_component_version_t, component_name));
static_assert(offsetof(ComponentVersion, spec_version) == offsetof(zel_component_version_t, spec_version));
static_assert(offsetof(ComponentVersion, major) == offsetof(zel_component_version_t, component_lib_version));

static_assert(vendor::same_function<Init>(zeInit));
static_assert(vendor::same_function<DriverGet>(zeDriverGet));
static_assert(vendor::same_function<DriverGetProperties>(zeDriverGetProperties));
static_assert(vendor::same_function<DriverGetExtensionProperties>(zeDriverGetExtensionProperties));
static_assert(vendor::same_function<DriverGetExtensionFunctionAddress>(zeDriverGetExtensionFunctionAddress));
static_assert(vendor::same_function<DeviceGet>(zeDeviceGet));
static_assert(vendor::same_function<DeviceGetProperties>(zeDeviceGetProperties));
static_assert(vendor::same_function<ContextCreate>(zeContextCreate));
static_assert(vendor::same_function<MemAllocHost>(zeMemAllocHost));
static_assert(vendor::same_function<MemFree>(zeMemFree));
static_assert(vendor::same_function<MemGetAllocProperties>(zeMemGetAllocProperties));
static_assert(vendor::same_function<MemGetAddressRange>(zeMemGetAddressRange));
static_assert(vendor::same_function<LoaderTranslateHandle>(zelLoaderTranslateHandle));
static_assert(vendor::same_function<LoaderGetVersions>(zelLoaderGetVersions));

} // namespace
