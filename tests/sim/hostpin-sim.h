/*
 * hostpin-sim: simulated CUDA and HIP runtimes, for testing code that pins host memory on a machine without a GPU.
 *
 * The simulated runtimes are shared libraries with the vendors' names (libcudart.so.12, libcuda.so.1, libamdhip64.so.7
 * and so on), one per directory. Put a directory in front with LD_LIBRARY_PATH, or dlopen the file. All of them share the
 * driver in libhostpin-sim.so.0, which this header controls: link with it (pkg-config hostpin-sim), or steer it by the
 * environment variable HOSTPIN_SIM alone.
 *
 * Calls may be made from any thread. Strings returned stay valid for ever. Addresses are never dereferenced, except
 * by the simulated copy functions (cudaMemcpy and its kin), so a huge PROT_NONE reservation can be "pinned" at no cost.
 *
 * Where the real runtime would kill the process or corrupt it, the simulation prints one line on stderr and calls abort():
 * an interior hipHostUnregister, any call in a forked child of a process that had initialised the driver, any call to a
 * runtime after exit() has torn it down.
 */
#ifndef HOSTPIN_SIM_H
#define HOSTPIN_SIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HPS_API __attribute__((visibility("default")))

/* Which driver: the CUDA runtimes and libcuda share one, the HIP runtimes another. */
#define HPS_CUDA 0
#define HPS_HIP 1

/* ---- The script ---------------------------------------------------------------------------------------------------
 *
 * Text "key=value,key=value", the same in HOSTPIN_SIM and hps_script(). Sizes take K, M, G, T (powers of 1024). WHAT is the
 * exported name of a vendor function, or "register" or "unregister" (those of every runtime), or "*" (all functions).
 *
 *   devices=N               devices of each vendor, at most 16 (1); 0: "no device" from every call, for ever
 *   init=CODE               the driver cannot be initialised: CODE from every call, for ever (35: no driver at all)
 *   driver_version=N        answer of the driver's version query (13000); a newer major runtime then answers 35
 *   load_driver=1           a cudart loads libcuda.so.1 when it initialises, as the real one does, and answers 35 without it
 *   lost=CODE               the device is lost: CODE from every call and never cleared (700, 719, ...)
 *   sticky=1                reading a last error does not clear it
 *   attribute=NR:VALUE[:DEVICE]   a device attribute, by CUDA's number (for HIP too), of one or all devices
 *   device_offset=SIZE      device pointer of host memory = host pointer + SIZE; attribute 91 is then 0
 *
 *   fail=WHAT:N:CODE        the Nth such call answers CODE and does nothing; N counts from 1 since the last reset and may be
 *                           "3", "3-5", "3+" (from then on) or "*"
 *   random=WHAT:P:CODE      each such call fails so with probability P; seed=N makes another sequence
 *   delay=WHAT:MS[:MS_PER_GIB]    the call takes at least so long
 *   serial=1                delays exclude each other, as under a driver-wide lock
 *
 *   max_call=SIZE           one register call of SIZE or more is refused, with code 2 by CUDA (512G there, no limit for HIP)
 *   max_pin=SIZE            one register call of more than SIZE is refused with code 1 (2G: Linux 6.11 to 6.13)
 *   max_total=SIZE          no more than SIZE can be pinned at a time (WSL2), then code 2
 *   maps=0                  do not look at /proc/self/maps: unmapped and read-only memory is taken, and calls are faster
 *   file_lock=DIR           two processes inside a register call for the same shared file at once: code 1 for the later one
 *   after_destroy=CODE      unregister of memory whose context was destroyed (713; 709 and 4 are seen as well)
 *
 *   hip_overlap=accept|refuse     registering registered memory again: accept is what HIP 5 and 6 do, refuse (712) HIP 7
 *   hip_iomemory=1          HIP 7 knows the IoMemory flag
 *
 *   fork=abort|CODE         a call in a forked child (abort)
 *   exit=abort|CODE         a call after the runtime was torn down by exit (abort)
 *   trace=1                 keep every call for hps_trace()
 *   log=FILE                append a line for every call: pid, thread, function, address, length, flags, code, file of the runtime
 */

/* Applies `text` on top of what holds. 0, or -1 with a line on stderr and nothing applied. */
HPS_API int32_t hps_script(const char *text);

/* As at load: nothing registered, no contexts, no last errors, counters at 0, hook and blocks gone, script of HOSTPIN_SIM. */
HPS_API void hps_reset(void);

/* ---- Calls --------------------------------------------------------------------------------------------------------- */

/* Calls to WHAT in this process since the last reset; refused ones count. */
HPS_API uint64_t hps_calls(const char *what);

typedef struct hps_call {
  const char *function;
  const char *runtime; /* file */
  const void *ptr; /* first address argument, or NULL */
  size_t length;
  int64_t thread; /* gettid() */
  uint32_t flags;
  int32_t code; /* what was answered */
} hps_call;

/* Calls kept since `trace=1`, oldest first: copies up to `capacity` of them to `calls`, returns how many there are. */
HPS_API size_t hps_trace(hps_call *calls, size_t capacity);

/* `hook` runs inside every vendor call, before it takes effect, on the calling thread, while no lock of the simulation is
 * held: it may block, count, or call hps_ and vendor functions (which call it again). NULL ends it. */
typedef void (*hps_hook)(const char *function, const void *ptr, size_t length, void *user);
HPS_API void hps_on_call(hps_hook hook, void *user);

/* From now on calls to WHAT ("*" excluded) wait before they take effect, until hps_unblock() or hps_reset(). */
HPS_API void hps_block(const char *what);
HPS_API void hps_unblock(const char *what);
/* Waits until `count` calls to WHAT are waiting. 0, or -1 when `timeout_ms` has passed. */
HPS_API int32_t hps_wait_blocked(const char *what, uint32_t count, uint32_t timeout_ms);

/* ---- What is pinned ------------------------------------------------------------------------------------------------ */

#define HPS_NONE 0
#define HPS_PARTIAL 1
#define HPS_ALL 2

/* How much of [ptr, ptr+length) lies on pages that some driver has pinned: HPS_NONE, HPS_PARTIAL or HPS_ALL. */
HPS_API int32_t hps_pinned(const void *ptr, size_t length);
/* Pinned pages among those of [ptr, ptr+length); of the whole process with NULL and 0. */
HPS_API uint64_t hps_pinned_pages(const void *ptr, size_t length);

#define HPS_REGISTERED 0 /* by a vendor register call */
#define HPS_FOREIGN 1    /* by hps_pin_foreign() */
#define HPS_ALLOCATED 2  /* by cudaHostAlloc */
#define HPS_LEAKED 3     /* a HIP duplicate: pinned, and no call can release it */

typedef struct hps_registration {
  const void *ptr; /* as given to the register call */
  size_t length;
  uint32_t flags;
  int32_t vendor;
  int32_t kind;
  int32_t device; /* of the context that registered it; -1 where there is none */
} hps_registration;

/* Everything pinned, by vendor and address: copies up to `capacity`, returns how many there are. */
HPS_API size_t hps_registrations(hps_registration *out, size_t capacity);
/* How many of them are HPS_REGISTERED or HPS_LEAKED. */
HPS_API size_t hps_live_registrations(void);

/* Pins or releases memory as other code of the process would, without counting a call. 0, or a vendor code. */
HPS_API int32_t hps_pin_foreign(int32_t vendor, const void *ptr, size_t length);
HPS_API int32_t hps_unpin_foreign(int32_t vendor, const void *ptr);

/* ---- Runtime copies in the process --------------------------------------------------------------------------------- */

/* Simulated runtimes now loaded. Writes up to `capacity` file names to `paths`, returns how many there are. */
HPS_API size_t hps_runtimes(const char **paths, size_t capacity);

/* The calling thread's last error in the copies whose path contains `runtime` (NULL: all). Sets it and returns how many
 * copies matched; the second one reads it from the first match without counting as a call, -1 if none matches. */
HPS_API int32_t hps_set_last_error(const char *runtime, int32_t code);
HPS_API int32_t hps_last_error(const char *runtime);

/* ---- Devices and CUDA contexts ------------------------------------------------------------------------------------- */

/* Primary contexts that vendor calls have created on `device` since the last reset; all devices with -1. */
HPS_API uint64_t hps_contexts_created(int32_t device);
/* 1 if the device's primary context is active. */
HPS_API int32_t hps_context_active(int32_t device);
/* Makes the primary context active, as another thread of the program would have done; counts no creation. */
HPS_API void hps_activate_context(int32_t device);
/* Destroys it, with all that was registered through it. */
HPS_API void hps_destroy_context(int32_t device);
/* The device whose context is current in the calling thread; -1: none. Setting activates it; -1 leaves the thread without. */
HPS_API int32_t hps_current_context(void);
HPS_API void hps_set_current_context(int32_t device);

/* ---- Stream capture ------------------------------------------------------------------------------------------------ */

#define HPS_CAPTURE_GLOBAL 0
#define HPS_CAPTURE_THREAD_LOCAL 1
#define HPS_CAPTURE_RELAXED 2

/* The calling thread begins or ends a capture (on both vendors). hps_capture_end() returns 0, or 901 if a forbidden call
 * has broken the capture. */
HPS_API void hps_capture_begin(int32_t mode);
HPS_API int32_t hps_capture_end(void);

#ifdef __cplusplus
}
#endif

#endif
