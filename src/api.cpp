// The only file with exported functions: arguments are checked here, and nothing that goes wrong inside leaves but as
// a status.
#include <cxxabi.h>
#include <hostpin.h>
#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <new>
#include <vector>

#include "backend.h"
#include "error.h"
#include "job.h"
#include "log.h"
#include "pin.h"
#include "split.h"
#include "state.h"
#include "system.h"

#define HP_STR2(x) #x
#define HP_STR(x) HP_STR2(x)

namespace {

using hp::Report;
using hp::State;

constexpr uint32_t kKnownFlags = HP_REGISTER_PORTABLE | HP_REGISTER_MAPPED | HP_REGISTER_IOMEMORY |
                                 HP_REGISTER_READONLY | HP_REGISTER_REQUIRED | HP_REGISTER_PREFAULT |
                                 HP_REGISTER_SERIALIZE | HP_REGISTER_HUGEPAGES | HP_REGISTER_DONTFORK;
constexpr uint64_t kDefaultChunk = uint64_t{64} << 30;

// Drivers may be cancellation points and set errno; neither is to be seen from outside.
class Quiet {
public:
  Quiet() noexcept : errno_(errno) { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_); }
  ~Quiet() {
    pthread_setcancelstate(cancel_, nullptr);
    errno = errno_;
  }
  Quiet(const Quiet &) = delete;
  Quiet &operator=(const Quiet &) = delete;

private:
  int errno_;
  int cancel_ = 0;
};

// Runs the body of a function; what it throws is a want of memory or of a thread. Keeps the words of any other status
// than HP_OK for hp_last_error().
template <class Body>
int32_t answer(Body body) noexcept {
  const Quiet quiet;
  Report report;
  int32_t status = HP_E_NO_MEMORY;
  try {
    status = body(report);
  } catch (...) {
    report = {};
  }
  if (status != HP_OK) hp::remember(status, report);
  return status;
}

// As answer(), for what would reach a driver.
template <class Body>
int32_t in_owner(const char *function, Body body) noexcept {
  return answer([&](Report &report) -> int32_t {
    State &state = State::get();
    if (!state.forked()) return body(state, report);
    report.text.add("%s: called in a forked child; the pins are the parent's, and drivers do not survive a fork", function);
    return HP_E_FORKED;
  });
}

bool range_is_valid(const char *function, const void *ptr, size_t len, Report &report) noexcept {
  const auto start = reinterpret_cast<uintptr_t>(ptr);
  if (!ptr)
    report.text.add("%s: ptr is NULL", function);
  else if (len == 0)
    report.text.add("%s: len is 0 for ptr %p", function, ptr);
  else if (len > UINTPTR_MAX - start || start + len > UINTPTR_MAX - hp::page_size())
    report.text.add("%s: ptr %p + len %zu wraps around the address space", function, ptr, len);
  return report.text.empty();
}

template <class Struct>
bool struct_is_valid(const char *function, const Struct *s, Report &report) noexcept {
  if (!s)
    report.text.add("%s: the structure is NULL", function);
  else if (s->struct_size != sizeof(*s))
    report.text.add("%s: struct_size is %u, this library knows %zu", function, s->struct_size, sizeof(*s));
  return report.text.empty();
}

uint64_t address(const void *ptr) noexcept { return reinterpret_cast<uintptr_t>(ptr); }

bool flags_are_known(const char *function, uint32_t flags, Report &report) noexcept {
  if (!(flags & ~kKnownFlags)) return true;
  report.text.add("%s: flags %#x has unknown bits %#x", function, flags, flags & ~kKnownFlags);
  return false;
}

template <class Body>
int32_t with_job(const char *function, const hp_job *job, Body body) noexcept {
  return in_owner(function, [&](State &, Report &report) -> int32_t {
    if (job) return body(report);
    report.text.add("%s: job is NULL", function);
    return HP_E_INVALID;
  });
}

void options_are_valid(const hp_job_options &options, Report &report) noexcept {
  if (options.keep > 1)
    report.text.add("hp_register_start: options.keep is %u, not 0 or 1", options.keep);
  else if (options.chunk_bytes && options.chunk_bytes < hp::page_size())
    report.text.add("hp_register_start: options.chunk_bytes is %" PRIu64 ", less than a page", options.chunk_bytes);
  else if (options.pause_ns > INT64_MAX)
    report.text.add("hp_register_start: options.pause_ns is %" PRIu64 ", over 292 years", options.pause_ns);
  else if (options.prefault_threads > 64)
    report.text.add("hp_register_start: options.prefault_threads is %u, not 0 to 64", options.prefault_threads);
  else if (options.reserved0 || std::any_of(std::begin(options.reserved), std::end(options.reserved), [](uint64_t r) { return r != 0; }))
    report.text.add("hp_register_start: a reserved field of options is not zero");
}

// The pages of a caller's ranges, one stretch for each that has a page of its own. Empty if something is wrong with them.
std::vector<hp::Extent> whole_pages_of(const char *function, const void *base, const hp_range *ranges, size_t n,
                                       Report &report) {
  std::vector<hp::Extent> stretches;
  if (!base || !ranges || n == 0)
    report.text.add("%s: %s", function, !base ? "base is NULL" : !ranges ? "ranges is NULL" : "n is 0");
  uint64_t before = 0;
  for (size_t i = 0; i < n && report.text.empty(); ++i) {
    const hp_range &r = ranges[i];
    if (r.end <= r.start)
      report.text.add("%s: ranges[%zu] is [%" PRIu64 ", %" PRIu64 "), which is empty or reversed", function, i, r.start, r.end);
    else if (i > 0 && r.start < before)
      report.text.add("%s: ranges[%zu] starts at %" PRIu64 ", before the end %" PRIu64 " of the one before it", function, i,
                      r.start, before);
    else if (r.end > UINTPTR_MAX - address(base) || address(base) + r.end > UINTPTR_MAX - hp::page_size())
      report.text.add("%s: base %p + the end %" PRIu64 " of ranges[%zu] wraps around the address space", function, base, r.end, i);
    if (!report.text.empty()) break;
    before = r.end;
    hp::Extent pages = hp::whole_pages(address(base) + r.start, r.end - r.start);
    if (!stretches.empty()) pages.start = std::max(pages.start, stretches.back().end);
    if (pages.start < pages.end) stretches.push_back(pages);
  }
  if (!report.text.empty()) stretches.clear();
  return stretches;
}

// The pages that lie wholly in the ranges, of which touching ones count as one; only needed to keep them out of children.
std::vector<hp::Extent> inner_pages(const void *base, const hp_range *ranges, size_t n, uint32_t flags) {
  std::vector<hp::Extent> inner;
  const uint64_t page = hp::page_size();
  for (size_t i = 0; (flags & HP_REGISTER_DONTFORK) && i < n;) {
    const uint64_t start = address(base) + ranges[i].start;
    while (++i < n && ranges[i].start == ranges[i - 1].end) {
    }
    const hp::Extent pages = {(start + page - 1) / page * page, (address(base) + ranges[i - 1].end) / page * page};
    if (pages.start < pages.end) inner.push_back(pages);
  }
  return inner;
}

}  // namespace

extern "C" {

int32_t hp_register(void *ptr, size_t len, uint32_t flags) {
  return in_owner("hp_register", [&](State &state, Report &report) -> int32_t {
    if (!range_is_valid("hp_register", ptr, len, report)) return HP_E_INVALID;
    if (!flags_are_known("hp_register", flags, report)) return HP_E_INVALID;
    const hp::Extent pages = hp::whole_pages(address(ptr), len);
    const hp_range whole = {0, len};
    return hp::register_region(state, {address(ptr), len, {&pages, 1}, inner_pages(ptr, &whole, 1, flags), flags}, report);
  });
}

int32_t hp_register_ranges(void *base, const hp_range *ranges, size_t n, uint32_t flags) {
  return in_owner("hp_register_ranges", [&](State &state, Report &report) -> int32_t {
    const std::vector<hp::Extent> stretches = whole_pages_of("hp_register_ranges", base, ranges, n, report);
    if (stretches.empty() || !flags_are_known("hp_register_ranges", flags, report)) return HP_E_INVALID;
    return hp::register_region(
        state, {address(base), ranges[n - 1].end, stretches, inner_pages(base, ranges, n, flags), flags}, report);
  });
}

int32_t hp_unregister(void *ptr) {
  return in_owner("hp_unregister", [&](State &state, Report &report) -> int32_t {
    if (!ptr) {
      report.text.add("hp_unregister: ptr is NULL");
      return HP_E_INVALID;
    }
    return hp::unregister(state, address(ptr), report);
  });
}

int32_t hp_unregister_all(uint64_t timeout_ns) {
  return in_owner("hp_unregister_all",
                  [&](State &state, Report &report) { return hp::unregister_all(state, timeout_ns, report); });
}

int32_t hp_split_ranges(const uint64_t *tensor_sizes, size_t num_tensors, uint64_t num_blocks, uint64_t total_size,
                        uint64_t max_chunk_bytes, uint64_t page_size, hp_range *ranges, size_t capacity,
                        size_t *num_ranges) {
  return answer([&](Report &report) -> int32_t {
    if (!tensor_sizes && num_tensors)
      report.text.add("hp_split_ranges: tensor_sizes is NULL and num_tensors is %zu", num_tensors);
    else if (!num_ranges)
      report.text.add("hp_split_ranges: num_ranges is NULL");
    else if (!ranges && capacity)
      report.text.add("hp_split_ranges: ranges is NULL and capacity is %zu", capacity);
    if (!report.text.empty()) return HP_E_INVALID;
    return hp::split_ranges(tensor_sizes, num_tensors, num_blocks, total_size,
                            max_chunk_bytes ? max_chunk_bytes : kDefaultChunk, page_size ? page_size : hp::page_size(),
                            ranges, capacity, num_ranges, report.text.data(), report.text.capacity());
  });
}

int32_t hp_split_copies(const hp_copy *in, size_t n, hp_copy *out, size_t capacity, size_t *count) {
  return in_owner("hp_split_copies", [&](State &state, Report &report) -> int32_t {
    if (!in && n)
      report.text.add("hp_split_copies: in is NULL and n is %zu", n);
    else if (!count)
      report.text.add("hp_split_copies: count is NULL");
    else if (!out && capacity)
      report.text.add("hp_split_copies: out is NULL and capacity is %zu", capacity);
    if (!report.text.empty()) return HP_E_INVALID;
    const hp::SegmentBorders borders = {
        [](const void *registry, uint64_t at) { return static_cast<const hp::Registry *>(registry)->border_after(at); },
        &state.registry};
    return hp::split_copies(in, n, out, capacity, count, borders, report.text.data(), report.text.capacity());
  });
}

int32_t hp_register_start(void *base, const hp_range *ranges, size_t n, uint32_t flags, const hp_job_options *options,
                          hp_job **job) {
  if (job) *job = nullptr;
  return in_owner("hp_register_start", [&](State &state, Report &report) -> int32_t {
    const hp_job_options defaults = {sizeof(defaults), 0, 0, 0, 0, 0, {}};
    const std::vector<hp::Extent> stretches = whole_pages_of("hp_register_start", base, ranges, n, report);
    if (stretches.empty() || !flags_are_known("hp_register_start", flags, report)) return HP_E_INVALID;
    if (!job)
      report.text.add("hp_register_start: job is NULL");
    else if (options && struct_is_valid("hp_register_start", options, report))
      options_are_valid(*options, report);
    if (!report.text.empty()) return HP_E_INVALID;
    return hp::start_job(state, address(base), ranges[n - 1].end, stretches, inner_pages(base, ranges, n, flags), flags,
                         options ? *options : defaults, *job);
  });
}

int32_t hp_job_poll(hp_job *job, hp_progress *out) {
  return with_job("hp_job_poll", job, [&](Report &report) -> int32_t {
    if (!struct_is_valid("hp_job_poll", out, report)) return HP_E_INVALID;
    hp::poll_job(*job, *out);
    return HP_OK;
  });
}

int32_t hp_job_wait(hp_job *job, uint64_t timeout_ns) {
  return with_job("hp_job_wait", job, [&](Report &report) { return hp::wait_for_job(*job, timeout_ns, report); });
}

int32_t hp_job_cancel(hp_job *job) {
  return with_job("hp_job_cancel", job, [&](Report &) -> int32_t {
    hp::cancel_job(*job);
    return HP_OK;
  });
}

void hp_job_free(hp_job *job) {
  const Quiet quiet;
  // A child has no thread that would use it, and locks that may be taken for ever: there it is left as it is.
  if (job && !State::existing()->forked()) hp::free_job(job);
}

int32_t hp_query(const void *ptr, size_t len, hp_region *out) {
  // Not through answer(): this is asked before every copy, and calls nothing that sets errno or can be cancelled.
  const uint64_t start = address(ptr);
  if (!ptr || len == 0 || len > UINTPTR_MAX - start || (out && out->struct_size != sizeof(*out)))
    return answer([&](Report &report) -> int32_t {
      if (range_is_valid("hp_query", ptr, len, report)) struct_is_valid("hp_query", out, report);
      return HP_E_INVALID;
    });
  if (out) {
    *out = {};
    out->struct_size = sizeof(*out);
  }
  const State *state = State::existing();
  return state && !state->forked() && state->registry.query(start, len, out) ? HP_OK : HP_PAGEABLE;
}

int32_t hp_device_pointer(const void *ptr, void **device_ptr) {
  return in_owner("hp_device_pointer", [&](State &state, Report &report) -> int32_t {
    if (!ptr || !device_ptr) {
      report.text.add("hp_device_pointer: %s is NULL", ptr ? "device_ptr" : "ptr");
      return HP_E_INVALID;
    }
    uint64_t device = 0;
    const int32_t status = hp::device_pointer(state, address(ptr), device, report);
    if (status == HP_OK) *device_ptr = reinterpret_cast<void *>(static_cast<uintptr_t>(device));
    return status;
  });
}

int32_t hp_get_backend(hp_backend_info *out) {
  return in_owner("hp_get_backend", [&](State &state, Report &report) -> int32_t {
    if (!struct_is_valid("hp_get_backend", out, report)) return HP_E_INVALID;
    *out = hp::selection(state.config()).info;
    return HP_OK;
  });
}

int32_t hp_get_stats(hp_stats *out) {
  return answer([&](Report &report) -> int32_t {
    if (!struct_is_valid("hp_get_stats", out, report)) return HP_E_INVALID;
    const hp::Counters &c = hp::counters;
    *out = {};
    out->struct_size = sizeof(*out);
    out->registrations = c.registrations;
    out->segments = c.segments;
    out->stuck_segments = c.stuck_segments;
    out->pinned_bytes = c.pinned_bytes;
    out->pinned_bytes_max = c.pinned_bytes_max;
    out->pageable_bytes = c.pageable_bytes;
    out->foreign_bytes = c.foreign_bytes;
    out->vendor_calls = c.vendor_calls;
    out->vendor_ns = c.vendor_ns;
    out->vendor_ns_max = c.vendor_ns_max;
    out->failed_invalid = c.failed_invalid;
    out->failed_memory = c.failed_memory;
    out->failed_foreign = c.failed_foreign;
    out->failed_unsupported = c.failed_unsupported;
    out->failed_capture = c.failed_capture;
    out->failed_device = c.failed_device;
    out->failed_release = c.failed_release;
    out->failed_other = c.failed_other;
    return HP_OK;
  });
}

const char *hp_strerror(int32_t status) { return hp::status_text(status); }

const char *hp_last_error(void) { return hp::last_error(); }

int64_t hp_last_native_error(void) { return hp::last_native_error(); }

void hp_set_log_callback(void (*fn)(int32_t level, const char *msg, void *user), void *user) {
  const Quiet quiet;
  hp::set_log_callback(fn, user);
}

int32_t hp_configure(const hp_config *config) {
  return in_owner("hp_configure", [&](State &state, Report &report) -> int32_t {
    if (!struct_is_valid("hp_configure", config, report)) return HP_E_INVALID;
    return state.configure(*config, report);
  });
}

uint32_t hp_version(void) { return HP_VERSION_MAJOR << 16 | HP_VERSION_MINOR << 8 | HP_VERSION_PATCH; }

const char *hp_version_string(void) {
  return HP_STR(HP_VERSION_MAJOR) "." HP_STR(HP_VERSION_MINOR) "." HP_STR(HP_VERSION_PATCH);
}

}  // extern "C"
