/* What a compiled program has of the header: sizes, offsets and values. A line here that must change means that old
 * programs break: the soname's number has to go up. A new field takes the place of a reserved one instead. */
#include <hostpin.h>
#include <stddef.h>

#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field)
#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)
#define VALUE(name, value) _Static_assert((name) == (value), #name)

SIZE(hp_range, 16);
AT(hp_range, end, 8);
SIZE(hp_copy, 24);
AT(hp_copy, other, 8);
AT(hp_copy, bytes, 16);

SIZE(hp_region, 96);
AT(hp_region, backend, 4);
AT(hp_region, start, 8);
AT(hp_region, end, 16);
AT(hp_region, flags, 24);
AT(hp_region, references, 28);
AT(hp_region, one_segment, 32);
AT(hp_region, host_address, 36);
AT(hp_region, stuck, 40);
AT(hp_region, foreign, 44);
AT(hp_region, reserved, 48);

SIZE(hp_backend_info, 136);
AT(hp_backend_info, backend, 4);
AT(hp_backend_info, capabilities, 8);
AT(hp_backend_info, device_count, 12);
AT(hp_backend_info, runtime_version, 16);
AT(hp_backend_info, driver_version, 20);
AT(hp_backend_info, max_segment, 24);
AT(hp_backend_info, name, 32);
AT(hp_backend_info, runtime_file, 40);
AT(hp_backend_info, cuda_reason, 48);
AT(hp_backend_info, hip_reason, 56);
AT(hp_backend_info, level_zero_reason, 64);
AT(hp_backend_info, reserved, 72);

SIZE(hp_stats, 216);
AT(hp_stats, registrations, 8);
AT(hp_stats, pinned_bytes, 32);
AT(hp_stats, vendor_calls, 64);
AT(hp_stats, failed_other, 144);
AT(hp_stats, reserved, 152);

SIZE(hp_config, 136);
AT(hp_config, backend, 4);
AT(hp_config, log_level, 8);
AT(hp_config, ze_memmap, 12);
AT(hp_config, max_segment, 16);
AT(hp_config, budget_bytes, 24);
AT(hp_config, budget_percent, 32);
AT(hp_config, prefault_threads, 36);
AT(hp_config, cudart, 40);
AT(hp_config, cuda_driver, 48);
AT(hp_config, amdhip, 56);
AT(hp_config, ze_loader, 64);
AT(hp_config, reserved, 72);

SIZE(hp_job_options, 64);
AT(hp_job_options, keep, 4);
AT(hp_job_options, chunk_bytes, 8);
AT(hp_job_options, pause_ns, 16);
AT(hp_job_options, prefault_threads, 24);
AT(hp_job_options, reserved, 32);

SIZE(hp_progress, 80);
AT(hp_progress, state, 4);
AT(hp_progress, status, 8);
AT(hp_progress, bytes_done, 16);
AT(hp_progress, bytes_total, 24);
AT(hp_progress, pinned_bytes, 32);
AT(hp_progress, elapsed_ns, 40);
AT(hp_progress, reserved, 48);

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

VALUE(HP_REGISTER_PORTABLE, 1);
VALUE(HP_REGISTER_MAPPED, 2);
VALUE(HP_REGISTER_IOMEMORY, 4);
VALUE(HP_REGISTER_READONLY, 8);
VALUE(HP_REGISTER_REQUIRED, 0x10000);
VALUE(HP_REGISTER_PREFAULT, 0x20000);
VALUE(HP_REGISTER_SERIALIZE, 0x40000);
VALUE(HP_REGISTER_HUGEPAGES, 0x80000);
VALUE(HP_REGISTER_DONTFORK, 0x100000);

VALUE(HP_BACKEND_AUTO, 0);
VALUE(HP_BACKEND_NONE, 1);
VALUE(HP_BACKEND_CUDA, 2);
VALUE(HP_BACKEND_HIP, 3);
VALUE(HP_BACKEND_LEVEL_ZERO, 4);
VALUE(HP_CAP_HOST_ADDRESS, 1);
VALUE(HP_CAP_DEVICE_POINTER, 2);
VALUE(HP_CAP_READ_ONLY, 4);
VALUE(HP_LOG_OFF, 1);
VALUE(HP_LOG_ERROR, 2);
VALUE(HP_LOG_WARN, 3);
VALUE(HP_LOG_INFO, 4);
VALUE(HP_LOG_DEBUG, 5);
VALUE(HP_JOB_RUNNING, 1);
VALUE(HP_JOB_DONE, 2);

/* The asserts are the test; the type keeps them from standing alone. */
int main(void) { return sizeof(hp_region) == 96 ? 0 : 1; }
