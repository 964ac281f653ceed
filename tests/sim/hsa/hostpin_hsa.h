// A stand-in for ROCr's libhsa-runtime64.so.1, just enough of it for AMD's own libamdhip64 to initialise and to
// register host memory on a machine without a device. Put its folder on LD_LIBRARY_PATH. No kernel runs and no copy is
// made by a device.
//
// The environment variable HOSTPIN_SIM_HSA, or hostpin_hsa_script at any time, sets
//   gpus=N              agents of type GPU (default 1); only before the first hsa_ call
//   alias=1             device addresses lie 1 TiB above the host's. libamdhip64 5.2.3 aborts in an ordinary
//   hipHostUnregister without it init_status=S       what hsa_init answers (an hsa_status_t) fail_lock_above=N   locks
//   of more than N bytes are refused with HSA_STATUS_ERROR_OUT_OF_RESOURCES (0: none) fail_lock_call=N    the Nth lock
//   from now is refused, once
// A key that is not in this list, and an unlock of a range that is not locked, end the program.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void hostpin_hsa_script(const char *text);

// "init", "lock" and "unlock": calls so far, refused ones included. HIP locks a page or two for its own use.
uint64_t hostpin_hsa_count(const char *what);

// Live locks that cover the byte at address: one for each device and registration.
uint64_t hostpin_hsa_locks_at(const void *address);

#ifdef __cplusplus
}
#endif
