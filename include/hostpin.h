/* hostpin.h - pin host memory that already exists, so that GPUs reach it by DMA.
 *
 * SPDX-License-Identifier: MIT
 *
 * This header is the reference manual of libhostpin. It is plain C99 and C++, with no inline functions and no enum
 * types. For parsers that know no attributes, such as cffi's: cc -E -P '-D__attribute__(x)=' hostpin.h
 *
 * What the library does
 *   A GPU copies from and to ordinary ("pageable") memory through a bounce buffer of its driver, at a fraction of the
 *   bus rate. Pinned (page-locked, registered) memory is reached by DMA directly. Each vendor has a call that pins
 *   memory which exists already: cudaHostRegister, hipHostRegister, and an import function of Level Zero drivers.
 *   hp_register() is one call in front of them. The vendor's library is looked for at run time; where there is none, or
 *   no device, or the driver refuses, the memory stays as it is, which is always correct, only slower.
 *
 * Words
 *   registration  one successful hp_register(), known by its base address.
 *   segment       one native registration with the driver. A registration has one segment or several. One copy (one
 *                 cudaMemcpyAsync, one entry of a batch) must not cross from one segment into the next.
 *   backend       cuda, hip, level_zero or none.
 *   runtime       the vendor library that a backend calls.
 *   pageable      ordinary memory. Transfers from it are right, only slower.
 *
 * Errors
 *   Every function that can fail returns int32_t: >= 0 is success, < 0 a fault of the caller or of the system. Outputs
 *   are written only on success, unless the function says otherwise. hp_last_error() has the words, for this thread.
 *   No call throws, aborts, exits, changes errno, installs a signal handler or prints more than a log line.
 *
 * Threads, fork and exit
 *   Every function may be called from any thread at any time. While a driver call runs no lock of the library is held:
 *   queries, log callbacks and work on other memory go on; two threads that want the same pages wait for each other.
 *   In a child of fork() the parent's pins are not the child's: a function that would reach a driver returns
 *   HP_E_FORKED there and reaches none, and hp_query() finds everything pageable. This holds once the parent has used
 *   the library; a child whose parent had not is as good as a new process. After exec() all is new.
 *   Nothing happens when the library is loaded, or at dlclose (it stays mapped). From the beginning of exit() on no
 *   driver is called any more, since it may be torn down: the operating system takes the pins back. exit() waits for a
 *   driver call that is under way, two seconds at most.
 *
 * Lifetime of the memory
 *   The library never owns memory. Call hp_unregister() before the memory is unmapped or freed, and only when no copy
 *   or kernel that uses it is still in flight: the library does not synchronise devices.
 *
 * Structures
 *   The caller sets struct_size to sizeof the structure (zero the rest first). Another size is HP_E_INVALID: the
 *   caller was compiled with a header that this library does not know. Reserved fields are zero in, zero out.
 */
#ifndef HP_HEADER_H
#define HP_HEADER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header. hp_version() tells the library's. */
#define HP_VERSION_MAJOR 1
#define HP_VERSION_MINOR 0
#define HP_VERSION_PATCH 0

#if defined(__GNUC__)
#define HP_API __attribute__((visibility("default")))
#define HP_MUST_CHECK __attribute__((warn_unused_result))
#else
#define HP_API
#define HP_MUST_CHECK
#endif

/* ---- Status codes ------------------------------------------------------------------------------------------------ */

#define HP_OK 0                /* done; for a register: all of it is pinned and this library pinned it */
#define HP_PAGEABLE 1          /* nothing is pinned; memory and transfers work as before */
#define HP_FOREIGN 2           /* somebody else in this process pinned all of it already; nothing was done */
#define HP_E_INVALID (-1)      /* an argument; hp_last_error() names it and its value */
#define HP_E_EXISTS (-2)       /* a registration with this base and another length is alive */
#define HP_E_NOT_FOUND (-3)    /* no registration has this base */
#define HP_E_UNAVAILABLE (-4)  /* no usable backend, and HP_REGISTER_REQUIRED was set */
#define HP_E_REFUSED (-5)      /* the driver refused, and HP_REGISTER_REQUIRED was set */
#define HP_E_STUCK (-6)        /* the driver would not release a segment: do not unmap; call again to retry */
#define HP_E_NO_BOUNDARY (-7)  /* no cut satisfies block, page and chunk limit */
#define HP_E_TOO_SMALL (-8)    /* the caller's array is too small; the needed count is written */
#define HP_E_NO_MEMORY (-9)    /* the library could not allocate */
#define HP_E_FORKED (-10)      /* called in a forked child */
#define HP_E_CANCELLED (-11)   /* the job was cancelled; what it had pinned is released */
#define HP_E_TIMEOUT (-12)     /* the deadline passed; the work goes on */
#define HP_E_UNSUPPORTED (-13) /* this backend cannot do that */
#define HP_E_BUDGET (-14)      /* the pin budget would be exceeded; no driver was called */

/* ---- Backends ---------------------------------------------------------------------------------------------------- */

#define HP_BACKEND_AUTO 0 /* only in hp_config: let the library choose */
#define HP_BACKEND_NONE 1
#define HP_BACKEND_CUDA 2
#define HP_BACKEND_HIP 3
#define HP_BACKEND_LEVEL_ZERO 4

/* What a backend can do: bits of hp_backend_info.capabilities. */
#define HP_CAP_HOST_ADDRESS 0x1u   /* device code may use the host address of pinned memory as it is */
#define HP_CAP_DEVICE_POINTER 0x2u /* hp_device_pointer() answers; without it pinned memory serves copies only */
#define HP_CAP_READ_ONLY 0x4u      /* memory that is mapped read-only can be pinned on every device */

/* ---- Registering ------------------------------------------------------------------------------------------------- */

/* Flags of hp_register(). The first four have CUDA's values and are translated for the other backends. */
#define HP_REGISTER_PORTABLE 0x1u      /* for all devices and contexts; always asked for where the runtime has it */
#define HP_REGISTER_MAPPED 0x2u        /* map it for device code; the runtimes do so by themselves today */
#define HP_REGISTER_IOMEMORY 0x4u      /* the range is memory-mapped I/O space of a device */
#define HP_REGISTER_READONLY 0x8u      /* devices only read it; added by itself for memory that is mapped read-only */
#define HP_REGISTER_REQUIRED 0x10000u  /* not pinned is an error, not HP_PAGEABLE */
#define HP_REGISTER_PREFAULT 0x20000u  /* make the pages present first, with several threads; no byte changes */
#define HP_REGISTER_SERIALIZE 0x40000u /* one process of the machine at a time pins the same shared file or memory */
#define HP_REGISTER_HUGEPAGES 0x80000u /* with PREFAULT: ask the kernel for huge pages first; a wish, never an error */
#define HP_REGISTER_DONTFORK 0x100000u /* keep whole pages of the range out of forked children while it is registered */

/* hp_register - pin [ptr, ptr + len) where it lies.
 *
 *   ptr    any address in host memory: heap, mmap, shared memory, stack, static data. No alignment is needed.
 *   len    bytes, 1 to SIZE_MAX; ptr + len must not wrap. What is pinned is exactly this range rounded out to pages.
 *   flags  HP_REGISTER_ bits, or 0. Where a registration is only counted, those of its first call hold.
 *
 * All or nothing: HP_OK means that every page is pinned. Nothing is copied and the mapping is not changed.
 *
 * Several registrations may share pages (two small buffers in one page, a part of a larger range, a partial overlap).
 * Pages that are pinned already are counted, only the others go to the driver, and a segment is released when no
 * registration covers a page of it any more. The same base and length again is counted: one driver call, as many
 * hp_unregister() calls. A length above the limit of one driver call (64 GiB unless configured) is cut
 * into several segments, at addresses that are multiples of 2 MiB where the limit allows it, else of a page.
 *
 * Returns
 *   HP_OK            pinned
 *   HP_PAGEABLE      not pinned, because no backend is usable or the driver refused; logged once for each cause,
 *                    hp_last_error() says why
 *   HP_FOREIGN       the driver says that all of it is pinned already, and not by this library
 *   HP_E_INVALID     ptr is NULL, len is 0, ptr + len wraps, an unknown flag
 *   HP_E_EXISTS      a live registration has this base and another length; end it first
 *   HP_E_UNAVAILABLE, HP_E_REFUSED   the two cases of HP_PAGEABLE with HP_REGISTER_REQUIRED
 *   HP_E_STUCK       the driver refused part of it and would not take back the rest: the registration exists and
 *                    holds what is still pinned. Do not unmap; hp_unregister() tries again
 *   HP_E_BUDGET      more than the configured budget would be pinned
 *   HP_E_NO_MEMORY, HP_E_FORKED
 *
 * Each call that returned >= 0 is ended by one hp_unregister(). After HP_PAGEABLE and HP_FOREIGN that may be left out:
 * a later registration with the same base replaces such a record, and only the newest 65,536 of them are kept.
 * Since 1.0. */
HP_API HP_MUST_CHECK int32_t hp_register(void *ptr, size_t len, uint32_t flags);

/* A half-open range of byte offsets, [start, end). */
typedef struct hp_range {
  uint64_t start;
  uint64_t end;
} hp_range;

/* hp_register_ranges - pin several ranges under one base, each as a segment of its own.
 *
 * For pools that copies are made of block by block: with the ranges of hp_split_ranges() no block lies across two
 * segments. A range above the limit of one driver call becomes several segments. Pages that are pinned already keep
 * the segments they have.
 *
 *   base    what the offsets count from, and what hp_unregister() takes
 *   ranges  n ranges, sorted, not overlapping, none empty; gaps between them are not pinned. Rounded out to pages;
 *           where two of them share a page, the border between their segments is the end of that page
 *
 * All or nothing, also over several ranges: what was pinned before a refusal is released again, last first. The same
 * base and pages again is counted.
 *
 * Returns as hp_register(); HP_E_INVALID also for ranges NULL, n 0, an empty, unsorted or overlapping range (the
 * message names its index), an offset that wraps. HP_E_EXISTS if base is registered with other ranges. Since 1.0. */
HP_API HP_MUST_CHECK int32_t hp_register_ranges(void *base, const hp_range *ranges, size_t n, uint32_t flags);

/* hp_unregister - end the registration whose base is exactly ptr.
 *
 * Segments that no other registration covers are released, last first. The memory itself is untouched. Memory that
 * this library did not pin is never released. A driver that says it is shutting down, or that the context of the
 * registration is gone, has released it: HP_OK.
 *
 * Returns
 *   HP_OK            ended, or counted down where it had been registered several times
 *   HP_E_INVALID     ptr is NULL
 *   HP_E_NOT_FOUND   no registration has this base; the message names one that contains ptr, if any. Nothing changed
 *   HP_E_STUCK       the driver would not release a segment, which stays known. Do not unmap; call again to retry
 *   HP_E_NO_MEMORY, HP_E_FORKED
 * Since 1.0. */
HP_API HP_MUST_CHECK int32_t hp_unregister(void *ptr);

/* hp_unregister_all - end every registration of this process, whatever its count, as for an orderly shutdown.
 *
 *   timeout_ns  nanoseconds from now; 0: do not wait, UINT64_MAX: without limit.
 *
 * A release that has begun in the driver cannot be broken off, so this is done on a thread of the library, which goes
 * on after the deadline. What is not released yet can still be queried.
 *
 * Returns
 *   HP_OK            nothing is registered any more
 *   HP_E_TIMEOUT     the deadline passed; hp_get_stats() and hp_query() tell what is left; call again to go on
 *   HP_E_STUCK       all but some stuck segments are released
 *   HP_E_NO_MEMORY, HP_E_FORKED
 * Since 1.0. */
HP_API HP_MUST_CHECK int32_t hp_unregister_all(uint64_t timeout_ns);

/* ---- Splitting a pool -------------------------------------------------------------------------------------------- */

/* hp_split_ranges - cut a pool of tensors into ranges to register one by one, so that no cut goes through a block.
 *
 * The pool holds num_tensors tensors back to back from offset 0, tensor_sizes[i] bytes each, each of num_blocks equal
 * blocks, and padding up to total_size. The ranges tile [0, total_size) with no gap, none longer than max_chunk_bytes,
 * as few as possible. A legal cut is a multiple of page_size that is also a block boundary of some tensor (its start
 * and end included), or any multiple of page_size at or after the end of the last tensor. The furthest legal cut is
 * always taken. A total of at most one chunk is one range, whatever the blocks; a total of 0 is one empty range.
 *
 *   tensor_sizes     num_tensors sizes in bytes; may be NULL when num_tensors is 0. A size of 0 constrains nothing
 *   num_blocks       blocks in each tensor; each size must be a multiple of it
 *   total_size       bytes, a multiple of page_size
 *   max_chunk_bytes  the longest range; 0 is 64 GiB; need not be a multiple of page_size
 *   page_size        0 is the system's; need not be a power of two
 *   ranges           room for capacity ranges, written on HP_OK only; NULL with capacity 0: HP_OK and the count only
 *   num_ranges       receives the count, on HP_OK and on HP_E_TOO_SMALL
 *
 * Time grows with num_tensors + ranges * log(num_tensors); no memory is allocated; exact for every value.
 *
 * Returns
 *   HP_OK
 *   HP_E_INVALID      checked in this order, each with its own message: a NULL where data is needed; total_size is not
 *                     a multiple of page_size; max_chunk_bytes is less than page_size; a tensor is not divisible by
 *                     num_blocks (0 blocks with any tensor counts); the tensors reach beyond total_size
 *   HP_E_NO_BOUNDARY  some chunk has no legal cut; the message names the offset and the nearest legal cut after it
 *   HP_E_TOO_SMALL    capacity is less than *num_ranges, which is written
 * Since 1.0. */
HP_API HP_MUST_CHECK int32_t hp_split_ranges(const uint64_t *tensor_sizes, size_t num_tensors, uint64_t num_blocks,
                                             uint64_t total_size, uint64_t max_chunk_bytes, uint64_t page_size,
                                             hp_range *ranges, size_t capacity, size_t *num_ranges);

/* One copy between host memory and a device, whose address may be anything. */
typedef struct hp_copy {
  const void *host;
  void *other;
  uint64_t bytes;
} hp_copy;

/* hp_split_copies - cut copies at segment borders, so that none lies across two segments.
 *
 * The same copies in the same order, each that crosses a border replaced by its pieces. Where host memory is not pinned
 * the border is where pinned memory begins: a copy must not lie half in pinned memory either. A copy of 0 bytes stays.
 *
 *   out       room for capacity copies, written on HP_OK only; NULL with capacity 0: HP_OK and the count only; not in
 *   count     receives the number of copies, on HP_OK and on HP_E_TOO_SMALL
 *
 * Calls no driver, allocates nothing, takes no lock. Segments that come or go during the call are cut at or not.
 *
 * Returns HP_OK, HP_E_TOO_SMALL, HP_E_INVALID (in NULL with n, count NULL, out NULL with capacity, an address that
 * wraps; the message names the index), HP_E_FORKED. Since 1.0. */
HP_API HP_MUST_CHECK int32_t hp_split_copies(const hp_copy *in, size_t n, hp_copy *out, size_t capacity,
                                             size_t *count);

/* ---- In the background ------------------------------------------------------------------------------------------- */

/* A registration under way on a thread of the library. */
typedef struct hp_job hp_job;

/* State of a job. */
#define HP_JOB_RUNNING 1
#define HP_JOB_DONE 2 /* hp_progress.status says how it ended */

/* How a job goes about it. Zero in a field means its default. */
typedef struct hp_job_options {
  uint32_t struct_size;      /* in: sizeof(hp_job_options) */
  uint32_t keep;             /* 1: after a refusal keep what is pinned; 0: all or nothing. Copies that are made
                                before the job ends need 1, else a refusal unpins memory under them */
  uint64_t chunk_bytes;      /* longest driver call; default 1 GiB. Cuts are at multiples of 2 MiB, and only in ranges
                                that are longer than this */
  uint64_t pause_ns;         /* nanoseconds between two driver calls, for others who need the driver; default 0 */
  uint32_t prefault_threads; /* with HP_REGISTER_PREFAULT; default by cores, 4 at most */
  uint32_t reserved0;
  uint64_t reserved[4];
} hp_job_options;

/* How far a job is. */
typedef struct hp_progress {
  uint32_t struct_size;  /* in: sizeof(hp_progress) */
  int32_t state;         /* HP_JOB_ */
  int32_t status;        /* when done: as hp_register_ranges() would have returned, or HP_E_CANCELLED; with `keep` and
                            a refusal HP_PAGEABLE, and pinned_bytes says how much is pinned; 0 while running */
  uint32_t reserved0;
  uint64_t bytes_done;   /* bytes that the driver has answered for, pinned or not */
  uint64_t bytes_total;  /* bytes asked for, rounded out to pages */
  uint64_t pinned_bytes; /* of these, pinned now */
  uint64_t elapsed_ns;   /* since the start, until the end */
  uint64_t reserved[4];
} hp_progress;

/* hp_register_start - as hp_register_ranges(), but on a thread of the library, chunk by chunk.
 *
 * Returns at once. Chunks that are pinned are usable, and seen by hp_query(), before the job ends. They are pinned on
 * the device that is current in the calling thread (CUDA, HIP). All jobs of a process together pin one chunk at a time.
 * A driver that refuses because of another thread's stream capture is asked again for a few seconds.
 *
 *   options  may be NULL
 *   job      receives the job, to be given to hp_job_free() in the end; NULL where this function fails
 *
 * Returns HP_OK (the job runs), HP_E_INVALID, HP_E_NO_MEMORY (also: no thread can be made), HP_E_FORKED. Since 1.0. */
HP_API HP_MUST_CHECK int32_t hp_register_start(void *base, const hp_range *ranges, size_t n, uint32_t flags,
                                               const hp_job_options *options, hp_job **job);

/* hp_job_poll - how far is it? Never waits. Returns HP_OK, HP_E_INVALID, HP_E_FORKED. Since 1.0. */
HP_API HP_MUST_CHECK int32_t hp_job_poll(hp_job *job, hp_progress *out);

/* hp_job_wait - wait for the end, at most timeout_ns nanoseconds (UINT64_MAX: without limit).
 *
 * Returns hp_progress.status of the ended job, with its words in hp_last_error(); HP_E_TIMEOUT while it runs on;
 * HP_E_INVALID, HP_E_FORKED. Since 1.0. */
HP_API HP_MUST_CHECK int32_t hp_job_wait(hp_job *job, uint64_t timeout_ns);

/* hp_job_cancel - ask it to stop; takes effect within one chunk, and releases what the job had pinned, with `keep` too.
 * This call does not wait. After the end of the job it does nothing.
 * Returns HP_OK, HP_E_INVALID, HP_E_FORKED. Since 1.0. */
HP_API HP_MUST_CHECK int32_t hp_job_cancel(hp_job *job);

/* hp_job_free - give the handle back. A job that still runs goes on by itself: its registration can be queried and
 * ended by base like any other. To be rid of it, cancel first. NULL does nothing. In a forked child too. Since 1.0. */
HP_API void hp_job_free(hp_job *job);

/* ---- Asking ------------------------------------------------------------------------------------------------------ */

/* What hp_query() tells of the segment that holds an address. All zero after struct_size when none does. */
typedef struct hp_region {
  uint32_t struct_size;  /* in: sizeof(hp_region) */
  int32_t backend;       /* HP_BACKEND_ of the segment */
  uint64_t start;        /* host address of its first byte */
  uint64_t end;          /* host address after its last byte */
  uint32_t flags;        /* HP_REGISTER_ bits that the driver was given */
  uint32_t references;   /* hp_unregister() calls that it waits for: registrations that cover it, with their counts */
  uint32_t one_segment;  /* 1: all of [ptr, ptr + len) lies in this one segment; copy it in one piece */
  uint32_t host_address; /* 1: device code may use the host address */
  uint32_t stuck;        /* 1: the driver would not release it */
  uint32_t foreign;      /* 1: pinned by somebody else, as far as known; start and end are those of our record */
  uint64_t reserved[6];
} hp_region;

/* hp_query - is all of [ptr, ptr + len) pinned, and in which segment does ptr lie?
 *
 * Calls no driver, allocates nothing, takes no lock: tens of nanoseconds, fit to be asked before every copy.
 *
 *   out   may be NULL; written on HP_OK and HP_PAGEABLE
 *
 * HP_PAGEABLE is an answer here, and leaves hp_last_error() as it was.
 *
 * Returns
 *   HP_OK         all of it is pinned, by this library or, as far as it knows, by others
 *   HP_PAGEABLE   some of it is not
 *   HP_E_INVALID  ptr is NULL, len is 0, ptr + len wraps, a wrong struct_size
 * Since 1.0. */
HP_API HP_MUST_CHECK int32_t hp_query(const void *ptr, size_t len, hp_region *out);

/* hp_device_pointer - the address by which device code reaches the pinned byte at ptr.
 *
 * Interior addresses keep their offset. The result holds inside one segment only: ask again for the next one. The
 * driver is asked at most once for each segment.
 *
 * Returns
 *   HP_OK             *device_ptr is written
 *   HP_E_INVALID      ptr or device_ptr is NULL
 *   HP_E_NOT_FOUND    ptr is not pinned by this library
 *   HP_E_UNSUPPORTED  this backend pins for copies only (Level Zero imports), or the driver has no address for it
 *   HP_E_NO_MEMORY, HP_E_FORKED
 * Since 1.0. */
HP_API HP_MUST_CHECK int32_t hp_device_pointer(const void *ptr, void **device_ptr);

/* The backend at hand. Texts belong to the library, are never NULL, never freed and never change. */
typedef struct hp_backend_info {
  uint32_t struct_size;          /* in: sizeof(hp_backend_info) */
  int32_t backend;               /* HP_BACKEND_ */
  uint32_t capabilities;         /* HP_CAP_ bits */
  int32_t device_count;          /* devices that the runtime sees */
  uint32_t runtime_version;      /* as the vendor counts: 12040 is CUDA 12.4, 60443484 is HIP 6.4; 0 unknown */
  uint32_t driver_version;       /* as the vendor counts; 0 unknown */
  uint64_t max_segment;          /* bytes in one driver call at most */
  const char *name;              /* "cuda", "hip", "level_zero", "none" */
  const char *runtime_file;      /* path or name of the vendor library; "" for none */
  const char *cuda_reason;       /* why cuda was passed over; "" when it was chosen */
  const char *hip_reason;        /* the same for hip */
  const char *level_zero_reason; /* the same for level_zero */
  uint64_t reserved[8];
} hp_backend_info;

/* hp_get_backend - which backend is used, and why not the others.
 *
 * Makes the choice if no call has made it yet, as hp_register() would: that first call may load vendor libraries and
 * initialise them. Later calls only read.
 *
 * Returns HP_OK, HP_E_INVALID (out is NULL, a wrong struct_size), HP_E_NO_MEMORY, HP_E_FORKED. Since 1.0. */
HP_API HP_MUST_CHECK int32_t hp_get_backend(hp_backend_info *out);

/* Counters since the process started. Each is exact; together they are a moment's view, not a snapshot. */
typedef struct hp_stats {
  uint32_t struct_size;      /* in: sizeof(hp_stats) */
  uint32_t reserved0;
  uint64_t registrations;    /* alive, pinned */
  uint64_t segments;         /* alive */
  uint64_t stuck_segments;   /* of these, not released by the driver */
  uint64_t pinned_bytes;     /* now: whole pages, each counted once */
  uint64_t pinned_bytes_max; /* the most at any time */
  uint64_t pageable_bytes;   /* in live records that returned HP_PAGEABLE, as asked for */
  uint64_t foreign_bytes;    /* in live records that returned HP_FOREIGN, as asked for */
  uint64_t vendor_calls;     /* driver calls that pin or release */
  uint64_t vendor_ns;        /* nanoseconds in them, in all */
  uint64_t vendor_ns_max;    /* the longest single one */
  uint64_t failed_invalid;   /* refused as an invalid value */
  uint64_t failed_memory;    /* refused for want of memory or address space */
  uint64_t failed_foreign;   /* refused because registered by somebody else */
  uint64_t failed_unsupported; /* not supported or not permitted */
  uint64_t failed_capture;   /* refused because of a stream capture */
  uint64_t failed_device;    /* device lost, runtime not usable */
  uint64_t failed_release;   /* releases that failed */
  uint64_t failed_other;
  uint64_t reserved[8];
} hp_stats;

/* hp_get_stats - read the counters. In a forked child they are the parent's as they stood at the fork.
 * Returns HP_OK, HP_E_INVALID (out is NULL, a wrong struct_size). Since 1.0. */
HP_API HP_MUST_CHECK int32_t hp_get_stats(hp_stats *out);

/* hp_strerror - the meaning of a status code in a few words. Never NULL; constant text. Since 1.0. */
HP_API const char *hp_strerror(int32_t status);

/* hp_last_error - what this thread's last call that did not return HP_OK had to say: the call, the range, the
 * native code with its name, the runtime's file, and what to do where that is known. "" if there was none. Never
 * NULL. The text is the library's and changes with this thread's next such call. Since 1.0. */
HP_API const char *hp_last_error(void);

/* hp_last_native_error - the vendor's code of that same call; 0 if no driver was involved. Since 1.0. */
HP_API int64_t hp_last_native_error(void);

/* ---- Logging and configuration ----------------------------------------------------------------------------------- */

#define HP_LOG_OFF 1
#define HP_LOG_ERROR 2
#define HP_LOG_WARN 3
#define HP_LOG_INFO 4
#define HP_LOG_DEBUG 5

/* hp_set_log_callback - receive log lines instead of stderr.
 *
 *   fn    called with the level (HP_LOG_), one line without a newline that is valid during the call only, and user.
 *         NULL: back to stderr. It may be called from any thread, also from several at once and from threads of the
 *         library; no lock is held. It must not throw. After the return of this function the old callback may still
 *         be running in another thread.
 *   user  handed on as it is; never freed.
 *
 * Lines below the configured level (HOSTPIN_LOG; warnings and errors by default) are not sent. Since 1.0. */
HP_API void hp_set_log_callback(void (*fn)(int32_t level, const char *msg, void *user), void *user);

/* Configuration from code. Zero in a field means its default. */
typedef struct hp_config {
  uint32_t struct_size;     /* in: sizeof(hp_config) */
  int32_t backend;          /* HP_BACKEND_; a backend named here is tried even without a sign of its device */
  int32_t log_level;        /* HP_LOG_; default HP_LOG_WARN */
  uint32_t ze_memmap;       /* 1: Level Zero may use its memmap extension (README: limits); default 0 */
  uint64_t max_segment;     /* bytes in one driver call at most, a page or more; default 64 GiB */
  uint64_t budget_bytes;    /* bytes that may be pinned at a time; default no limit */
  uint32_t budget_percent;  /* the same in percent of the memory this process may use, 1 to 100; not both */
  uint32_t prefault_threads; /* for HP_REGISTER_PREFAULT; default by cores, 4 at most */
  const char *cudart;       /* the runtime's file to use; copied; NULL: look for one */
  const char *cuda_driver;
  const char *amdhip;
  const char *ze_loader;
  uint64_t reserved[8];
} hp_config;

/* hp_configure - set what the environment does not.
 *
 * Before the first hp_register(), hp_get_backend() or other call that uses the configuration. The environment is
 * stronger, so that the person who runs a program has the last word: HOSTPIN_LOG (off, error, warn, info, debug),
 * HOSTPIN_BACKEND (auto, cuda, hip, level_zero, none), HOSTPIN_CUDART, HOSTPIN_CUDA_DRIVER, HOSTPIN_AMDHIP,
 * HOSTPIN_ZE_LOADER (a file), HOSTPIN_ZE_MEMMAP (0, 1), HOSTPIN_MAX_SEGMENT (bytes, or with K, M, G, T), HOSTPIN_BUDGET
 * (the same, or a percentage like 50%), HOSTPIN_PREFAULT_THREADS (1 to 64). It is read once, and not at all in
 * set-user-ID programs. A bad value there is one warning, and the default.
 *
 * Returns HP_OK, or HP_E_INVALID with nothing changed: config is NULL, a wrong struct_size, a value out of range, a
 * reserved field that is not zero, or too late. HP_E_NO_MEMORY. Since 1.0. */
HP_API HP_MUST_CHECK int32_t hp_configure(const hp_config *config);

/* ---- Version ----------------------------------------------------------------------------------------------------- */

/* hp_version - the library's version as 0xMMmmpp: major, minor, patch. Since 1.0. */
HP_API uint32_t hp_version(void);

/* hp_version_string - the same as text, "1.0.0". Since 1.0. */
HP_API const char *hp_version_string(void);

#ifdef __cplusplus
}
#endif

#endif /* HP_HEADER_H */
