/* Calls every function of 1.0 and looks at what comes back, field by field: a library with another idea of them fails
 * here. For any backend; the one that HOSTPIN_BACKEND names has to be there. Only added to, never changed: as it was at
 * a release it is built, and run on the libraries that come after. */
#include <hostpin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) \
  do { \
    if (!(condition)) { \
      fprintf(stderr, "%s:%d: %s; %s\n", __FILE__, __LINE__, #condition, hp_last_error()); \
      exit(1); \
    } \
  } while (0)

enum { kMiB = 1 << 20, kSize = 4 * kMiB };

static int lines;
static void count_line(int32_t level, const char *message, void *user) {
  CHECK(level >= HP_LOG_ERROR && level <= HP_LOG_DEBUG && message[0] && user == &lines);
  lines++;
}

/* In a later version they may be fields. */
static int reserved_are_zero(const uint64_t *reserved, size_t size) {
  int later = hp_version() >> 8 > (HP_VERSION_MAJOR << 8 | HP_VERSION_MINOR);
  for (size_t i = 0; i < size / sizeof(*reserved); i++)
    if (reserved[i] && !later) return 0;
  return 1;
}

static int all_zero(const void *bytes, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (((const char *)bytes)[i]) return 0;
  return 1;
}

static void check_version(void) {
  char text[32];
  uint32_t version = hp_version();
  snprintf(text, sizeof(text), "%u.%u.%u", version >> 16, version >> 8 & 255, version & 255);
  CHECK(strcmp(hp_version_string(), text) == 0);
  CHECK(version >> 16 == HP_VERSION_MAJOR);
  CHECK(version >= (HP_VERSION_MAJOR << 16 | HP_VERSION_MINOR << 8));
}

static void check_errors(void) {
  CHECK(hp_register(NULL, 1, 0) == HP_E_INVALID && strstr(hp_last_error(), "ptr") && hp_last_native_error() == 0);
  CHECK(hp_unregister(&lines) == HP_E_NOT_FOUND);
  for (int32_t status = HP_E_BUDGET; status <= HP_FOREIGN; status++)
    CHECK(strcmp(hp_strerror(status), hp_strerror(-1000)) != 0);
}

/* Returns what hp_register() is to return. */
static int32_t configure(void) {
  hp_config config = {.struct_size = sizeof(config), .log_level = HP_LOG_DEBUG, .max_segment = kMiB};
  config.budget_percent = 101;
  CHECK(hp_configure(&config) == HP_E_INVALID);
  config.budget_percent = 0;
  config.budget_bytes = 64 * kMiB;
  config.prefault_threads = 1;
  CHECK(hp_configure(&config) == HP_OK);

  hp_backend_info info = {.struct_size = sizeof(info)};
  CHECK(hp_get_backend(&info) == HP_OK);
  CHECK(info.struct_size == sizeof(info) && reserved_are_zero(info.reserved, sizeof(info.reserved)));
  static const char *const names[] = {"", "none", "cuda", "hip", "level_zero"};
  CHECK(info.backend >= HP_BACKEND_NONE && info.backend <= HP_BACKEND_LEVEL_ZERO);
  CHECK(strcmp(info.name, names[info.backend]) == 0);
  const char *wanted = getenv("HOSTPIN_BACKEND");
  CHECK(!wanted || strcmp(info.name, wanted) == 0);

  int none = info.backend == HP_BACKEND_NONE;
  CHECK(none == !info.runtime_file[0] && none == !info.device_count);
  CHECK((info.backend == HP_BACKEND_CUDA) == !info.cuda_reason[0]);
  CHECK((info.backend == HP_BACKEND_HIP) == !info.hip_reason[0]);
  CHECK((info.backend == HP_BACKEND_LEVEL_ZERO) == !info.level_zero_reason[0]);
  CHECK(none || info.max_segment == kMiB);
  CHECK(none || info.backend == HP_BACKEND_LEVEL_ZERO || (info.runtime_version && info.driver_version));
  CHECK(none == !info.capabilities);
  return none ? HP_PAGEABLE : HP_OK;
}

static void check_query(const char *memory, int32_t expected) {
  hp_region region = {.struct_size = sizeof(region)};
  CHECK(hp_query(memory + 1, 2, &region) == expected);
  CHECK(region.struct_size == sizeof(region) && reserved_are_zero(region.reserved, sizeof(region.reserved)));
  void *device = NULL;
  if (expected == HP_OK) {
    CHECK(region.backend >= HP_BACKEND_CUDA && !(region.flags & HP_REGISTER_REQUIRED));
    CHECK(region.start <= (uintptr_t)memory && region.end > (uintptr_t)memory && region.end - region.start <= kMiB);
    CHECK(region.references == 1 && region.one_segment == 1 && region.host_address <= 1);
    CHECK(!region.stuck && !region.foreign);
    CHECK(hp_query(memory, kSize, &region) == HP_OK && region.one_segment == 0);
    int32_t status = hp_device_pointer(memory, &device);
    CHECK(status == HP_E_UNSUPPORTED || (status == HP_OK && device));
  } else {
    CHECK(all_zero((char *)&region + sizeof(region.struct_size), sizeof(region) - sizeof(region.struct_size)));
    CHECK(hp_device_pointer(memory, &device) == HP_E_NOT_FOUND && !device);
  }
}

static void check_stats(uint64_t registrations, uint64_t bytes, uint64_t pageable) {
  hp_stats stats = {.struct_size = sizeof(stats)};
  CHECK(hp_get_stats(&stats) == HP_OK);
  CHECK(stats.struct_size == sizeof(stats) && reserved_are_zero(stats.reserved, sizeof(stats.reserved)));
  CHECK(stats.registrations == registrations && stats.segments == bytes / kMiB && stats.pinned_bytes == bytes);
  CHECK(stats.pinned_bytes_max >= bytes && stats.pageable_bytes == pageable);
  CHECK(stats.vendor_calls >= stats.segments && stats.vendor_ns >= stats.vendor_ns_max);
  CHECK(!stats.stuck_segments && !stats.foreign_bytes);
  CHECK(!stats.failed_invalid && !stats.failed_memory && !stats.failed_foreign && !stats.failed_unsupported);
  CHECK(!stats.failed_capture && !stats.failed_device && !stats.failed_release && !stats.failed_other);
}

static void check_registering(char *memory, int32_t expected) {
  int pinned = expected == HP_OK;
  CHECK(hp_register(memory, kSize, HP_REGISTER_PORTABLE | HP_REGISTER_MAPPED | HP_REGISTER_PREFAULT) == expected);
  check_stats(pinned, pinned ? kSize : 0, pinned ? 0 : kSize);
  check_query(memory, expected);

  /* Its two halves are four segments, and one piece where nothing is pinned. */
  hp_copy copy = {.host = memory, .other = &lines, .bytes = kSize}, pieces[4];
  size_t count = 0;
  CHECK(hp_split_copies(&copy, 1, pieces, 4, &count) == HP_OK && count == (pinned ? 4 : 1));
  CHECK(pieces[0].host == memory && pieces[0].other == &lines && pieces[0].bytes == kSize / count);

  CHECK(hp_unregister(memory) == HP_OK);
  check_stats(0, 0, 0);
  CHECK(hp_register(memory, kSize, HP_REGISTER_REQUIRED) == (pinned ? HP_OK : HP_E_UNAVAILABLE));
  CHECK(hp_unregister_all(UINT64_MAX) == HP_OK);
}

static void check_ranges(char *memory, int32_t expected) {
  uint64_t tensors[2] = {kSize / 2, kSize / 2};
  hp_range ranges[4];
  size_t n = 0;
  CHECK(hp_split_ranges(tensors, 2, 4, kSize, kMiB, 4096, NULL, 0, &n) == HP_OK && n == 4);
  CHECK(hp_split_ranges(tensors, 2, 4, kSize, kMiB, 4096, ranges, 3, &n) == HP_E_TOO_SMALL && n == 4);
  CHECK(hp_split_ranges(tensors, 2, 4, kSize, kMiB, 4096, ranges, 4, &n) == HP_OK && n == 4);
  for (size_t i = 0; i < n; i++) CHECK(ranges[i].start == i * kMiB && ranges[i].end == (i + 1) * kMiB);

  CHECK(hp_register_ranges(memory, ranges, n, 0) == expected && hp_unregister(memory) == HP_OK);

  hp_job_options options = {.struct_size = sizeof(options), .keep = 1, .chunk_bytes = kMiB, .pause_ns = 1};
  hp_job *job = NULL;
  options.prefault_threads = 65;
  CHECK(hp_register_start(memory, ranges, n, 0, &options, &job) == HP_E_INVALID && !job);
  options.prefault_threads = 1;
  CHECK(hp_register_start(memory, ranges, n, HP_REGISTER_PREFAULT, &options, &job) == HP_OK && job);
  CHECK(hp_job_wait(job, UINT64_MAX) == expected);
  hp_progress progress = {.struct_size = sizeof(progress)};
  CHECK(hp_job_poll(job, &progress) == HP_OK);
  CHECK(progress.struct_size == sizeof(progress) && reserved_are_zero(progress.reserved, sizeof(progress.reserved)));
  CHECK(progress.state == HP_JOB_DONE && progress.status == expected);
  CHECK(progress.bytes_done <= kSize && progress.bytes_total == kSize && progress.elapsed_ns > 0);
  CHECK(progress.bytes_done >= progress.pinned_bytes);
  CHECK(progress.pinned_bytes == (expected == HP_OK ? kSize : 0));
  CHECK(hp_job_cancel(job) == HP_OK);
  hp_job_free(job);
  CHECK(hp_unregister(memory) == HP_OK);
}

int main(void) {
  char *memory = aligned_alloc(2 * kMiB, kSize);
  CHECK(memory != NULL);
  memset(memory, 1, kSize);
  hp_set_log_callback(count_line, &lines);
  check_version();
  check_errors();
  int32_t expected = configure();
  check_registering(memory, expected);
  check_ranges(memory, expected);
  check_stats(0, 0, 0);
  CHECK(lines > 0);
  hp_set_log_callback(NULL, NULL);
  free(memory);
  printf("every function of 1.0, backend %s\n", expected == HP_OK ? "pins" : "none");
  return 0;
}
