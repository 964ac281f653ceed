/* What a compiled program has of the header: sizes, places and types of fields, values, signatures. To compile
 * this file is to pass. It lists everything that the header has: a test compares the two.
 *
 * When a line fails, old programs break, unless the text above its group says otherwise. What breaks them needs a
 * new major version: raise HP_VERSION_MAJOR (the soname follows it) and do as README.md says. */
#include <hostpin.h>
#include <stddef.h>

/* Both the type and its place: two fields of one type that change places move no offset. */
#define FIELD(structure, type, field, offset) \
  _Static_assert(offsetof(structure, field) == (offset), #structure "." #field " has moved"); \
  _Static_assert(_Generic(&((structure *)0)->field, type *: 1, default: 0), #structure "." #field " has another type")
#define RESERVED(structure, field, count, offset) \
  FIELD(structure, uint64_t, field[0], offset); \
  _Static_assert(sizeof(((structure *)0)->field) == (count) * 8, #structure "." #field " has another length")
#define SIZE(structure, size) _Static_assert(sizeof(structure) == (size), #structure " has another size")
#define VALUE(name, value) _Static_assert((name) == (value), #name " has another value")
#define FUNCTION(result, name, parameters) \
  _Static_assert(_Generic(&name, result(*) parameters: 1, default: 0), #name " has another signature")

/* Structures without struct_size, which programs have arrays of. When one of these fails: take the change back,
 * and add a new structure with a new function that takes it. Not even an appended field is possible. */
SIZE(hp_range, 16);
FIELD(hp_range, uint64_t, start, 0);
FIELD(hp_range, uint64_t, end, 8);

SIZE(hp_copy, 24);
FIELD(hp_copy, const void *, host, 0);
FIELD(hp_copy, void *, other, 8);
FIELD(hp_copy, uint64_t, bytes, 16);

/* Structures with struct_size. Their size must stay: the library takes no other. A new field takes the place of
 * the first reserved one, and zero in it means what the library did before: then change the line of the reserved
 * one alone, raise HP_VERSION_MINOR, make hostpin.abi anew and name the field in CHANGELOG.md. When any other line
 * fails, take the change back, or add a new structure with a new function. */
SIZE(hp_job_options, 64);
FIELD(hp_job_options, uint32_t, struct_size, 0);
FIELD(hp_job_options, uint32_t, keep, 4);
FIELD(hp_job_options, uint64_t, chunk_bytes, 8);
FIELD(hp_job_options, uint64_t, pause_ns, 16);
FIELD(hp_job_options, uint32_t, prefault_threads, 24);
FIELD(hp_job_options, uint32_t, reserved0, 28);
RESERVED(hp_job_options, reserved, 4, 32);

SIZE(hp_progress, 80);
FIELD(hp_progress, uint32_t, struct_size, 0);
FIELD(hp_progress, int32_t, state, 4);
FIELD(hp_progress, int32_t, status, 8);
FIELD(hp_progress, uint32_t, reserved0, 12);
FIELD(hp_progress, uint64_t, bytes_done, 16);
FIELD(hp_progress, uint64_t, bytes_total, 24);
FIELD(hp_progress, uint64_t, pinned_bytes, 32);
FIELD(hp_progress, uint64_t, elapsed_ns, 40);
RESERVED(hp_progress, reserved, 4, 48);

SIZE(hp_region, 96);
FIELD(hp_region, uint32_t, struct_size, 0);
FIELD(hp_region, int32_t, backend, 4);
FIELD(hp_region, uint64_t, start, 8);
FIELD(hp_region, uint64_t, end, 16);
FIELD(hp_region, uint32_t, flags, 24);
FIELD(hp_region, uint32_t, references, 28);
FIELD(hp_region, uint32_t, one_segment, 32);
FIELD(hp_region, uint32_t, host_address, 36);
FIELD(hp_region, uint32_t, stuck, 40);
FIELD(hp_region, uint32_t, foreign, 44);
RESERVED(hp_region, reserved, 6, 48);

SIZE(hp_backend_info, 136);
FIELD(hp_backend_info, uint32_t, struct_size, 0);
FIELD(hp_backend_info, int32_t, backend, 4);
FIELD(hp_backend_info, uint32_t, capabilities, 8);
FIELD(hp_backend_info, int32_t, device_count, 12);
FIELD(hp_backend_info, uint32_t, runtime_version, 16);
FIELD(hp_backend_info, uint32_t, driver_version, 20);
FIELD(hp_backend_info, uint64_t, max_segment, 24);
FIELD(hp_backend_info, const char *, name, 32);
FIELD(hp_backend_info, const char *, runtime_file, 40);
FIELD(hp_backend_info, const char *, cuda_reason, 48);
FIELD(hp_backend_info, const char *, hip_reason, 56);
FIELD(hp_backend_info, const char *, level_zero_reason, 64);
RESERVED(hp_backend_info, reserved, 8, 72);

SIZE(hp_stats, 216);
FIELD(hp_stats, uint32_t, struct_size, 0);
FIELD(hp_stats, uint32_t, reserved0, 4);
FIELD(hp_stats, uint64_t, registrations, 8);
FIELD(hp_stats, uint64_t, segments, 16);
FIELD(hp_stats, uint64_t, stuck_segments, 24);
FIELD(hp_stats, uint64_t, pinned_bytes, 32);
FIELD(hp_stats, uint64_t, pinned_bytes_max, 40);
FIELD(hp_stats, uint64_t, pageable_bytes, 48);
FIELD(hp_stats, uint64_t, foreign_bytes, 56);
FIELD(hp_stats, uint64_t, vendor_calls, 64);
FIELD(hp_stats, uint64_t, vendor_ns, 72);
FIELD(hp_stats, uint64_t, vendor_ns_max, 80);
FIELD(hp_stats, uint64_t, failed_invalid, 88);
FIELD(hp_stats, uint64_t, failed_memory, 96);
FIELD(hp_stats, uint64_t, failed_foreign, 104);
FIELD(hp_stats, uint64_t, failed_unsupported, 112);
FIELD(hp_stats, uint64_t, failed_capture, 120);
FIELD(hp_stats, uint64_t, failed_device, 128);
FIELD(hp_stats, uint64_t, failed_release, 136);
FIELD(hp_stats, uint64_t, failed_other, 144);
RESERVED(hp_stats, reserved, 8, 152);

SIZE(hp_config, 136);
FIELD(hp_config, uint32_t, struct_size, 0);
FIELD(hp_config, int32_t, backend, 4);
FIELD(hp_config, int32_t, log_level, 8);
FIELD(hp_config, uint32_t, ze_memmap, 12);
FIELD(hp_config, uint64_t, max_segment, 16);
FIELD(hp_config, uint64_t, budget_bytes, 24);
FIELD(hp_config, uint32_t, budget_percent, 32);
FIELD(hp_config, uint32_t, prefault_threads, 36);
FIELD(hp_config, const char *, cudart, 40);
FIELD(hp_config, const char *, cuda_driver, 48);
FIELD(hp_config, const char *, amdhip, 56);
FIELD(hp_config, const char *, ze_loader, 64);
RESERVED(hp_config, reserved, 8, 72);

/* Statuses. Programs were compiled with the values, and other languages have copied them: when one fails, take the
 * change back. A new one takes the next free number and raises HP_VERSION_MINOR. Functions that are not new return
 * it only where they returned another negative one before. */
VALUE(HP_OK, 0);
VALUE(HP_PAGEABLE, 1);
VALUE(HP_FOREIGN, 2);
VALUE(HP_E_INVALID, -1);
VALUE(HP_E_EXISTS, -2);
VALUE(HP_E_NOT_FOUND, -3);
VALUE(HP_E_UNAVAILABLE, -4);
VALUE(HP_E_REFUSED, -5);
VALUE(HP_E_STUCK, -6);
VALUE(HP_E_NO_BOUNDARY, -7);
VALUE(HP_E_TOO_SMALL, -8);
VALUE(HP_E_NO_MEMORY, -9);
VALUE(HP_E_FORKED, -10);
VALUE(HP_E_CANCELLED, -11);
VALUE(HP_E_TIMEOUT, -12);
VALUE(HP_E_UNSUPPORTED, -13);
VALUE(HP_E_BUDGET, -14);

/* Backends, capabilities, levels and states: likewise. A new one takes the next free number or bit and raises
 * HP_VERSION_MINOR. */
VALUE(HP_BACKEND_AUTO, 0);
VALUE(HP_BACKEND_NONE, 1);
VALUE(HP_BACKEND_CUDA, 2);
VALUE(HP_BACKEND_HIP, 3);
VALUE(HP_BACKEND_LEVEL_ZERO, 4);
VALUE(HP_CAP_HOST_ADDRESS, 0x1);
VALUE(HP_CAP_DEVICE_POINTER, 0x2);
VALUE(HP_CAP_READ_ONLY, 0x4);
VALUE(HP_JOB_RUNNING, 1);
VALUE(HP_JOB_DONE, 2);
VALUE(HP_LOG_OFF, 1);
VALUE(HP_LOG_ERROR, 2);
VALUE(HP_LOG_WARN, 3);
VALUE(HP_LOG_INFO, 4);
VALUE(HP_LOG_DEBUG, 5);

/* Flags: likewise. The first four are CUDA's. A new one takes the next free bit from 0x10000 on and raises
 * HP_VERSION_MINOR: older libraries refuse it with HP_E_INVALID. */
VALUE(HP_REGISTER_PORTABLE, 0x1);
VALUE(HP_REGISTER_MAPPED, 0x2);
VALUE(HP_REGISTER_IOMEMORY, 0x4);
VALUE(HP_REGISTER_READONLY, 0x8);
VALUE(HP_REGISTER_REQUIRED, 0x10000);
VALUE(HP_REGISTER_PREFAULT, 0x20000);
VALUE(HP_REGISTER_SERIALIZE, 0x40000);
VALUE(HP_REGISTER_HUGEPAGES, 0x80000);
VALUE(HP_REGISTER_DONTFORK, 0x100000);

/* Functions. When one fails, take the change back and add a function with another name: a line here and in
 * symbols.txt, HP_VERSION_MINOR raised, and a node HOSTPIN_<major>.<minor> for it in hostpin.map. None goes within
 * a major version. */
FUNCTION(int32_t, hp_register, (void *, size_t, uint32_t));
FUNCTION(int32_t, hp_register_ranges, (void *, const hp_range *, size_t, uint32_t));
FUNCTION(int32_t, hp_unregister, (void *));
FUNCTION(int32_t, hp_unregister_all, (uint64_t));
FUNCTION(int32_t, hp_split_ranges,
         (const uint64_t *, size_t, uint64_t, uint64_t, uint64_t, uint64_t, hp_range *, size_t, size_t *));
FUNCTION(int32_t, hp_split_copies, (const hp_copy *, size_t, hp_copy *, size_t, size_t *));
FUNCTION(int32_t, hp_register_start, (void *, const hp_range *, size_t, uint32_t, const hp_job_options *, hp_job **));
FUNCTION(int32_t, hp_job_poll, (hp_job *, hp_progress *));
FUNCTION(int32_t, hp_job_wait, (hp_job *, uint64_t));
FUNCTION(int32_t, hp_job_cancel, (hp_job *));
FUNCTION(void, hp_job_free, (hp_job *));
FUNCTION(int32_t, hp_query, (const void *, size_t, hp_region *));
FUNCTION(int32_t, hp_device_pointer, (const void *, void **));
FUNCTION(int32_t, hp_get_backend, (hp_backend_info *));
FUNCTION(int32_t, hp_get_stats, (hp_stats *));
FUNCTION(const char *, hp_strerror, (int32_t));
FUNCTION(const char *, hp_last_error, (void));
FUNCTION(int64_t, hp_last_native_error, (void));
FUNCTION(void, hp_set_log_callback, (void (*)(int32_t, const char *, void *), void *));
FUNCTION(int32_t, hp_configure, (const hp_config *));
FUNCTION(uint32_t, hp_version, (void));
FUNCTION(const char *, hp_version_string, (void));
