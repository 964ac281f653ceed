// A Level Zero driver of our own for the real loader: ZE_ENABLE_ALT_DRIVERS=/path/to/libhostpin-ze-driver.so. It has
// devices that can do nothing but the import of host memory, and fails where a test wants it to. A copy of the file
// under another name is a second driver.
//
// The environment variable HOSTPIN_SIM_ZE, or hostpin_ze_script at any time, sets (R: a ze_result_t, 0 for success)
//   init=R, driver_get=R, device_get=R, properties=R   what zeInit, zeDriverGet, zeDeviceGet and zeDeviceGetProperties
//   answer devices=N               number of devices (default 1, at most 16) device_type=T           their
//   ze_device_type_t (default 1, a GPU) lookup=R                zeDriverGetExtensionFunctionAddress answers R and
//   leaves the pointer alone lookup_release=R        the same for zexDriverReleaseImportedPointer only lookup_nothing=1
//   it answers success and leaves the pointer alone, as the loader's null driver does import=R, release=R     what each
//   import or release answers fail_import_above=N     imports of more than N bytes answer OUT_OF_HOST_MEMORY (0: none)
//   fail_import_call=N      the Nth import from now answers OUT_OF_HOST_MEMORY, once
//   fail_release_call=N     the Nth release from now answers UNKNOWN, once
//   memmap=1                advertise ZE_extension_external_memmap_sysmem, which maps existing pages by zeMemAllocHost
//   memmap_ignored=1        zeMemAllocHost knows no such description and gives fresh memory, as drivers without the
//   extension do memmap_kept=1           zeMemFree keeps the pages mapped, and hands them out again to the next
//   allocation of their size memmap_result=R         what each such zeMemAllocHost answers fail_memmap_call=N      the
//   Nth of them from now answers OUT_OF_HOST_MEMORY, once context_create=R        what zeContextCreate answers strict=0
//   answer overlapping imports, inner releases and calls in a forked child as Intel's driver does
// With strict=1, the default, each of those ends the program, because it does damage there: see imports.cpp. So does a
// driver handle that is the loader's wrapper around ours (Intel's driver would crash), a mapping that is not of whole
// pages or overlaps another, a zeMemFree of anything but a base, and a key that is not in this list.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void hostpin_ze_script(const char *text);

// "init", "lookup", "import", "release" and "memmap_call" (zeMemAllocHost of existing pages): calls so far, refused
// ones included. "live", "memmap", "allocation" and "context": imports, mapped ranges, other host allocations and
// contexts now.
uint64_t hostpin_ze_count(const char *what);

// Whether a live import covers the byte at address.
int hostpin_ze_covers(const void *address);

#ifdef __cplusplus
}
#endif
