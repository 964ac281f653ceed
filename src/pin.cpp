#include "pin.h"

#include <hostpin.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "backend.h"
#include "background.h"
#include "log.h"
#include "mappings.h"
#include "prefault.h"
#include "serialize.h"
#include "system.h"

namespace hp {

namespace {

constexpr uint64_t kSmallestSegment = uint64_t{256} << 20;  // refusals are not answered with smaller ones than this
constexpr unsigned kMaxAttempts = 12;
constexpr uint64_t kSegmentAlign = uint64_t{2} << 20;  // so that no huge page lies in two segments
constexpr uint64_t kLookFirst = uint64_t{1} << 20;  // from here on mappings are looked at before the driver is called
constexpr uint64_t kNoDevicePointer = UINT64_MAX;  // kept for a segment whose device pointer was refused

unsigned long long ull(uint64_t n) noexcept { return n; }

uint64_t now_ns() noexcept {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

std::atomic<uint64_t> *failure_counter(Failure failure) noexcept {
  switch (failure) {
    case Failure::none:
    case Failure::gone: return nullptr;
    case Failure::unmapped:
    case Failure::invalid: return &counters.failed_invalid;
    case Failure::memory: return &counters.failed_memory;
    case Failure::foreign:
    case Failure::foreign_part: return &counters.failed_foreign;
    case Failure::unsupported: return &counters.failed_unsupported;
    case Failure::capture: return &counters.failed_capture;
    case Failure::device: return &counters.failed_device;
    case Failure::other: break;
  }
  return &counters.failed_other;
}

// Calls the driver and keeps the books.
template <class Call>
Outcome timed(Call call) {
  const DriverCall driver_call;
  if (!driver_call.allowed()) return {Failure::gone, 0, "exit"};  // the operating system takes the pins back
  const uint64_t begin = now_ns();
  const Outcome outcome = call();
  const uint64_t took = now_ns() - begin;
  counters.vendor_calls.fetch_add(1, std::memory_order_relaxed);
  counters.vendor_ns.fetch_add(took, std::memory_order_relaxed);
  uint64_t longest = counters.vendor_ns_max.load(std::memory_order_relaxed);
  while (took > longest && !counters.vendor_ns_max.compare_exchange_weak(longest, took)) {
  }
  return outcome;
}

Outcome pin_once(const Backend &backend, const Extent &segment, uint32_t flags, Pinned &result) {
  const Outcome outcome = timed([&] { return backend.pin(segment.start, segment.size(), flags, result); });
  if (auto *counter = failure_counter(outcome.failure)) counter->fetch_add(1, std::memory_order_relaxed);
  return outcome;
}

// A mapping that cannot be written needs the read-only flag, which not every device knows; where the memory can be
// written it does without. Of small ranges the kernel is only asked after a refusal: the question
// would cost more than the pin.
Outcome pin_segment(const Backend &backend, const Extent &segment, uint32_t &flags, Pinned &result) {
  if (segment.size() >= kLookFirst) {
    const Mapping mapping = mapping_of(segment.start, segment.end);
    if (!mapping.mapped && !mapping.unknown) return {Failure::unmapped, 0, "/proc/self/maps"};
    if (!mapping.writable && mapping.readable) flags |= HP_REGISTER_READONLY;
  }
  const Outcome first = pin_once(backend, segment, flags, result);
  const bool read_only = flags & HP_REGISTER_READONLY;
  if (first.failure != (read_only ? Failure::unsupported : Failure::invalid)) return first;
  const Mapping mapping = mapping_of(segment.start, segment.end);
  if (!mapping.mapped || mapping.writable != read_only) return first;
  flags ^= HP_REGISTER_READONLY;
  return pin_once(backend, segment, flags, result);
}

bool smaller_may_help(const Outcome &outcome) noexcept {
  return outcome.failure == Failure::invalid || outcome.failure == Failure::memory;
}

constexpr char kForeignPartHint[] = "; hint: other code in this process pinned a part of it; pin the whole in one place";

// What is known to lead to such a refusal, and what to do.
void add_hint(const Outcome &outcome, const Extent &segment, Text &text) noexcept {
  const Mapping mapping = mapping_of(segment.start, segment.end);
  rlimit limit{};
  if (outcome.hint)
    text.add("; hint: %s", outcome.hint);
  else if (outcome.failure == Failure::foreign_part)
    text.add("%s", kForeignPartHint);
  else if (outcome.failure == Failure::capture)
    text.add("; hint: a stream capture is under way; pin before it or after it");
  else if (outcome.failure == Failure::device)
    text.add("; hint: the device or its context is lost; the process has to be started again");
  else if (mapping.unknown)
    return;
  else if (!mapping.mapped)
    text.add("; hint: not all of the range is mapped");
  else if (!mapping.readable)
    text.add("; hint: the range is mapped without access (PROT_NONE)");
  else if (mapping.device)
    text.add("; hint: the range maps device memory; HP_REGISTER_IOMEMORY may be needed");
  else if (!mapping.writable)
    text.add("; hint: the range is mapped read-only, which this device or driver does not pin");
  else if (mapping.file)
    text.add("; hint: the range maps a file on a filesystem, which the kernel does not let drivers pin for long; use "
             "shared memory, a memfd or private memory");
  else if (outcome.failure == Failure::memory && running_under_wsl())
    text.add("; hint: WSL lets only a part of the memory be pinned");
  else if (outcome.failure == Failure::memory && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
           limit.rlim_cur < segment.size())
    text.add("; hint: the limit of locked memory (ulimit -l) is %llu bytes, which some drivers count",
             ull(limit.rlim_cur));
}

void describe_refusal(const Selection &s, const Outcome &outcome, const Extent &segment, uint64_t base, uint32_t flags,
                      Report &report) noexcept {
  const KernelVersion kernel = kernel_version();
  report.native = outcome.native;
  report.text.clear();
  report.text.add("%s(%#llx, %llu bytes, flags %#x) at offset %llu of the range ", outcome.call, ull(segment.start),
                  ull(segment.size()), flags, ull(segment.start > base ? segment.start - base : 0));
  if (outcome.native)
    report.text.add("failed: %lld %s", static_cast<long long>(outcome.native), s.backend->code_name(outcome.native));
  else if (outcome.failure == Failure::foreign || outcome.failure == Failure::foreign_part)
    report.text.add("says that %s registered already", outcome.failure == Failure::foreign ? "it is" : "some of it is");
  else
    report.text.add("says that it cannot be pinned");
  report.text.add("; %s, driver %u, kernel %u.%u", s.info.runtime_file, s.info.driver_version, kernel.major, kernel.minor);
  add_hint(outcome, segment, report.text);
}

uint64_t half_of(const Extent &segment) noexcept {
  return (segment.size() / 2 + kSegmentAlign - 1) / kSegmentAlign * kSegmentAlign;
}

// Bytes of the first piece: of at most `largest` where that leaves it large enough.
uint64_t first_piece(const Extent &segment, uint64_t largest, uint64_t align) noexcept {
  if (segment.size() <= largest) return segment.size();
  uint64_t end = (segment.start + largest) / align * align;
  if (end < segment.start + kSmallestSegment) end = (segment.start + kSmallestSegment + align - 1) / align * align;
  return std::min(end, segment.end) - segment.start;
}

}  // namespace

Step pin_step(Course &c, Report &report) {
  Registry &registry = c.state.registry;
  const bool known = c.work.only.size() != 0;
  Extent segment = c.work.only;
  c.work.only = {};
  if (!known && !registry.next_unpinned(*c.work.registration, segment, c.from)) return Step::done;
  if (const uint64_t piece = first_piece(segment, c.largest, c.align); piece < segment.size() && registry.cut(segment, piece))
    segment.end = segment.start + piece;
  if (c.flags & HP_REGISTER_PREFAULT)
    prefault(segment, {c.state.config().prefault_threads, (c.flags & HP_REGISTER_HUGEPAGES) != 0, nullptr,
                       &c.huge_pages_slow});
  Pinned result;
  uint32_t used = (c.flags & 15) | HP_REGISTER_PORTABLE;
  c.outcome = pin_segment(*c.selection.backend, segment, used, result);
  if (c.outcome.failure == Failure::none) {
    registry.pinned(segment, result, c.selection.backend->id, used);
    c.from = segment.end;
    c.bytes += segment.size();
    return known ? Step::done : Step::pinned;
  }
  const bool smaller = !c.outcome.held && smaller_may_help(c.outcome) && half_of(segment) >= kSmallestSegment;
  if (smaller && c.align == 0) c.align = std::max(kSegmentAlign, largest_page(segment.start, segment.end));
  if (smaller && first_piece(segment, half_of(segment), c.align) < segment.size() && ++c.refusals < kMaxAttempts) {
    c.largest = half_of(segment);
    // Refusals that pass by themselves (pages that must be moved first) are given a moment before the last attempt.
    if (c.refusals + 1 == kMaxAttempts || c.largest < 2 * kSmallestSegment)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return Step::again;
  }
  describe_refusal(c.selection, c.outcome, segment, c.work.registration->base, used, report);
  // So that the roll-back releases it.
  if (c.outcome.held) registry.pinned(segment, result, c.selection.backend->id, used);
  return Step::refused;
}

bool release_segment(const Selection &s, Registry &registry, const Registration &r, const Extent &segment,
                     Report &report) {
  const Outcome outcome = timed([&] { return s.backend->unpin(segment.start, segment.size()); });
  if (outcome.failure == Failure::none || outcome.failure == Failure::gone) {
    registry.released(segment);
    return true;
  }
  counters.failed_release.fetch_add(1, std::memory_order_relaxed);
  registry.stuck(segment);
  report.native = outcome.native;
  report.text.clear();
  report.text.add("%s(%#llx) ", outcome.call, ull(segment.start));
  if (outcome.native)
    report.text.add("failed: %lld %s", static_cast<long long>(outcome.native), s.backend->code_name(outcome.native));
  else
    report.text.add("did not release it");
  report.text.add("; %s. The driver still holds %llu bytes there: do not unmap them, call hp_unregister(%#llx) again",
                  s.info.runtime_file, ull(segment.size()), ull(r.base));
  if (outcome.hint) report.text.add("; hint: %s", outcome.hint);
  return false;
}

int32_t stuck(const Report &report) noexcept {
  if (first_time("stuck", report.native)) log_line(HP_LOG_ERROR, "%s", report.text.c_str());
  return HP_E_STUCK;
}

void release_all(const Selection &s, Registry &registry, const Registration &r, Report &report) {
  Extent segment;
  while (registry.last_releasing(r, segment)) release_segment(s, registry, r, segment, report);
}

namespace {

// The driver speaks of one segment. Have others pinned all the rest as well, and we none of it?
bool all_foreign(const Selection &s, Registry &registry, const Registration &r) {
  Extent segment;
  if (registry.unpinned_bytes(r) != r.pages.size() || !registry.next_unpinned(r, segment)) return false;
  while (registry.next_unpinned(r, segment, segment.end)) {
    Pinned result;
    const Outcome outcome = pin_once(*s.backend, segment, HP_REGISTER_PORTABLE, result);
    if (outcome.failure == Failure::foreign) continue;
    // Pinned against expectation: it is released with the rest.
    if (outcome.failure == Failure::none || outcome.held)
      registry.pinned(segment, result, s.backend->id, HP_REGISTER_PORTABLE);
    return false;
  }
  return true;
}

}  // namespace

int32_t roll_back(State &state, const Selection &s, const Outcome &outcome, Registration &r, uint64_t len, bool required,
                  Report &report) {
  const bool foreign = outcome.failure == Failure::foreign && all_foreign(s, state.registry, r);
  if (outcome.failure == Failure::foreign && !foreign) report.text.add("%s", kForeignPartHint);
  state.registry.abandon(r);
  release_all(s, state.registry, r, report);
  back_into_children(state, r);
  if (!state.registry.settle(r, len, foreign ? Kind::foreign : required ? Kind::none : Kind::pageable))
    return stuck(report);
  if (foreign) return HP_FOREIGN;
  if (required) return HP_E_REFUSED;
  tell_of_refusal(outcome, report);
  return HP_PAGEABLE;
}

void tell_of_refusal(const Outcome &outcome, const Report &report) noexcept {
  if (outcome.failure != Failure::gone && first_time(outcome.call, outcome.native))
    log_line(HP_LOG_WARN, "memory stays pageable: %s", report.text.c_str());
}

int32_t unavailable(State &state, const Selection &s, const Region &region, Report &report) {
  report.text.add("no GPU runtime is usable, so memory stays pageable: cuda: %s; hip: %s; level_zero: %s",
                  s.info.cuda_reason, s.info.hip_reason, s.info.level_zero_reason);
  if (region.required()) return HP_E_UNAVAILABLE;
  if (!state.registry.record(region.base, region.len, Kind::pageable)) {
    report.text.clear();
    report.text.add("%#llx was pinned meanwhile by another thread", ull(region.base));
    return HP_E_EXISTS;
  }
  if (first_time("no backend", 0)) log_line(HP_LOG_WARN, "%s", report.text.c_str());
  return HP_PAGEABLE;
}

namespace {

// Stretches that touch are looked at as one; small ones, for which the question would cost more than the pin, not at all.
bool all_mapped(std::span<const Extent> stretches) noexcept {
  for (size_t i = 0; i < stretches.size();) {
    Extent joined = stretches[i];
    while (++i < stretches.size() && stretches[i].start == joined.end) joined.end = stretches[i].end;
    if (joined.size() < kLookFirst) continue;
    const Mapping mapping = mapping_of(joined.start, joined.end);
    if (!mapping.mapped && !mapping.unknown) return false;
  }
  return true;
}

}  // namespace

bool is_hopeless(State &state, const Selection &s, const Region &region, int32_t &status, Report &report) {
  const bool one_segment =
      region.stretches.size() == 1 && region.stretches[0].size() <= std::max(s.info.max_segment, kLookFirst);
  if (one_segment || all_mapped(region.stretches)) return false;
  counters.failed_invalid.fetch_add(1, std::memory_order_relaxed);
  report.text.add("not all of the %llu bytes at %#llx are mapped, so they stay pageable; no driver was called",
                  ull(region.len), ull(region.base));
  status = region.required() ? HP_E_REFUSED : HP_PAGEABLE;
  if (status == HP_PAGEABLE && !state.registry.record(region.base, region.len, Kind::pageable)) {
    report.text.clear();
    report.text.add("%#llx is registered with another length; unregister it first", ull(region.base));
    status = HP_E_EXISTS;
  }
  if (status == HP_PAGEABLE && first_time("unmapped", 0)) log_line(HP_LOG_WARN, "%s", report.text.c_str());
  return true;
}

int32_t reserve(State &state, const Selection &s, const Region &region, uint64_t limit, const std::atomic<bool> *stop,
                Task &work, Report &report) {
  Registry::Request request{region.base, region.len, {}, region.stretches, stop};
  for (const Extent &stretch : region.stretches) request.pages.append(stretch);
  limit = std::min(limit, s.info.max_segment) / page_size() * page_size();
  uint64_t align = kSegmentAlign;
  // Huge pages of a file of their own may be larger, and must not lie in two segments either.
  if (request.pages.size() > limit)
    align = std::max(align, largest_page(region.stretches.front().start, region.stretches.back().end));
  if (align > kSegmentAlign && align <= s.info.max_segment) limit = std::max(limit, align);
  const Registry::Limits limits{limit, align, state.config().budget_bytes};
  switch (state.registry.reserve(request, limits, work, report)) {
    case Registry::Reserve::reserved:
    case Registry::Reserve::counted: return HP_OK;
    case Registry::Reserve::exists: return HP_E_EXISTS;
    case Registry::Reserve::over_budget: return HP_E_BUDGET;
    case Registry::Reserve::stopped: return HP_E_CANCELLED;
    case Registry::Reserve::too_often: break;
  }
  report.text.add("%#llx is registered more than 2^31 times", ull(region.base));
  return HP_E_NO_MEMORY;
}

int32_t register_region(State &state, const Region &region, Report &report) {
  const Selection &s = selection(state.config());
  if (s.backend == &kNone) return unavailable(state, s, region, report);
  Course course{state, s, region.flags, {}};
  int32_t status = HP_OK;
  if (is_hopeless(state, s, region, status, report)) return status;
  status = reserve(state, s, region, UINT64_MAX, nullptr, course.work, report);
  if (status != HP_OK || !course.work.registration) return status;
  Registration &r = *course.work.registration;
  leave_out_of_children(state, region, r);
  std::optional<SharedMemoryLock> alone;
  if (region.flags & HP_REGISTER_SERIALIZE) alone.emplace(region.stretches, nullptr);
  Step step;
  do step = pin_step(course, report);
  while (step == Step::pinned || step == Step::again);
  if (alone) alone->release();
  if (step == Step::refused) return roll_back(state, s, course.outcome, r, region.len, region.required(), report);
  state.registry.publish(r, region.len);
  return HP_OK;
}

void leave_out_of_children(State &state, const Region &region, Registration &r, uint64_t end) noexcept {
  if (!(region.flags & HP_REGISTER_DONTFORK)) return;
  const auto before = std::move(r.not_in_children);
  try {
    r.not_in_children = std::make_unique<std::vector<Extent>>();
    for (const Extent &pages : region.inner)
      if (pages.start < end) r.not_in_children->push_back({pages.start, std::min(pages.end, end)});
    state.registry.fork_exclusion.add(*r.not_in_children);
  } catch (const std::bad_alloc &) {  // then fork copies, which is right, only slower
    r.not_in_children.reset();
  }
  if (before) state.registry.fork_exclusion.remove(*before);
}

void back_into_children(State &state, Registration &r) noexcept {
  if (r.not_in_children) state.registry.fork_exclusion.remove(*r.not_in_children);
  r.not_in_children.reset();
}

namespace {

int32_t end_registration(State &state, uint64_t base, bool whatever_count, Report &report) {
  Task work;
  switch (state.registry.begin_release(base, whatever_count, work, report)) {
    case Registry::Release::ended: return HP_OK;
    case Registry::Release::not_found: return HP_E_NOT_FOUND;
    case Registry::Release::release: break;
  }
  Registration &r = *work.registration;
  const Selection &s = selection(state.config());
  if (work.only.size() != 0 && release_segment(s, state.registry, r, work.only, report)) {
    back_into_children(state, r);
    state.registry.forget_released(r);
    return HP_OK;
  }
  release_all(s, state.registry, r, report);
  back_into_children(state, r);
  return state.registry.settle(r, r.len, Kind::none) ? HP_OK : stuck(report);
}

// Ends every registration up to the newest given, first those that no other thread is at work on; true when some segment
// is stuck.
bool end_up_to(State &state, const std::atomic<uint64_t> &newest) {
  bool stuck = false;
  Report ignored;
  for (uint64_t base = UINT64_MAX; state.registry.next_to_end(newest, base);)
    stuck = end_registration(state, base, true, ignored) == HP_E_STUCK || stuck;
  return stuck;
}

void tear_down(void *argument) {
  State &state = *static_cast<State *>(argument);
  Teardown &t = state.teardown;
  std::unique_lock lock(t.mutex);
  while (t.answered < t.requests) {
    const uint64_t request = t.requests;
    lock.unlock();
    const bool stuck = end_up_to(state, t.newest);
    lock.lock();
    t.stuck = stuck;
    t.answered = request;
    t.changed.notify_all();
  }
  t.running = false;
}

}  // namespace

int32_t unregister(State &state, uint64_t base, Report &report) { return end_registration(state, base, false, report); }

int32_t unregister_all(State &state, uint64_t timeout_ns, Report &report) {
  Teardown &t = state.teardown;
  std::unique_lock lock(t.mutex);
  if (state.registry.empty() && !t.running) return HP_OK;
  t.newest = state.registry.newest();
  state.registry.look_again();
  const uint64_t request = ++t.requests;
  if (!t.running) {
    start_background(tear_down, &state);
    t.running = true;
  }
  if (!t.changed.wait_until(lock, deadline_after(timeout_ns), [&] { return t.answered >= request; })) {
    report.text.add("hp_unregister_all: the deadline of %llu ns passed; %llu bytes are still pinned and being released",
                    ull(timeout_ns), ull(counters.pinned_bytes.load()));
    return HP_E_TIMEOUT;
  }
  if (!t.stuck) return HP_OK;
  report.text.add("hp_unregister_all: the driver would not release %llu segment(s): do not unmap them",
                  ull(counters.stuck_segments.load()));
  return HP_E_STUCK;
}

int32_t device_pointer(State &state, uint64_t ptr, uint64_t &device, Report &report) {
  Extent segment;
  uint32_t serial = 0;
  if (!state.registry.device(ptr, segment, device, serial)) {
    report.text.add("hp_device_pointer: %#llx is not pinned by this library", ull(ptr));
    return HP_E_NOT_FOUND;
  }
  const Selection &s = selection(state.config());
  Outcome outcome;
  if (device == 0) {
    const DriverCall call;
    outcome = call.allowed() ? s.backend->device_pointer(segment.start, device) : Outcome{Failure::gone, 0, "exit"};
    state.registry.keep_device(segment, serial, outcome.failure == Failure::none ? device : kNoDevicePointer);
  }
  if (outcome.failure != Failure::none || device == kNoDevicePointer) {
    report.native = outcome.native;
    report.text.add("hp_device_pointer: %s has no device address for %#llx; copies to and from it work", s.backend->name,
                    ull(ptr));
    return HP_E_UNSUPPORTED;
  }
  device += ptr - segment.start;
  return HP_OK;
}

}  // namespace hp
