#include "job.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "backend.h"
#include "background.h"
#include "pin.h"
#include "prefault.h"
#include "serialize.h"
#include "system.h"

using Clock = std::chrono::steady_clock;

namespace hp {

static uint64_t current_in(const Backend &backend) {
  const DriverCall call;
  return call.allowed() && backend.current ? backend.current() : 0;
}

}  // namespace hp

// Held by the caller's handle and by the thread; the later of them deletes it.
struct hp_job {
  hp_job(hp::State &in, const hp::Selection &chosen, uint64_t base, uint64_t len, std::vector<hp::Extent> pages,
         std::vector<hp::Extent> inner_pages, uint32_t flags, const hp_job_options &how)
      : state(in), selection(chosen), stretches(std::move(pages)), inner(std::move(inner_pages)),
        region{base, len, stretches, inner, flags}, options(how),
        device(hp::current_in(*chosen.backend)) {
    hp::Pages all;
    for (const hp::Extent &stretch : stretches) all.append(stretch);
    bytes_total = all.size();
  }

  hp::State &state;
  const hp::Selection &selection;
  const std::vector<hp::Extent> stretches;
  const std::vector<hp::Extent> inner;
  const hp::Region region;
  const hp_job_options options;
  const uint64_t device;  // what was current in the caller
  const Clock::time_point started = Clock::now();

  std::atomic<int> holders{2};
  std::atomic<bool> cancelled{false};
  std::atomic<uint64_t> bytes_total{0}, bytes_done{0}, pinned_bytes{0};
  std::mutex mutex;
  std::condition_variable changed;
  bool decided = false;  // what becomes of it: a cancel comes too late
  bool done = false;
  int32_t status = 0;
  uint64_t elapsed_ns = 0;
  hp::Report report;
};

namespace hp {

namespace {

constexpr uint64_t kDefaultChunk = uint64_t{1} << 30;
constexpr std::chrono::seconds kCapturePatience{5};
constexpr uint64_t kCapturePauseNs = 20'000'000;

// Jobs make one driver call at a time; leaked, as threads outlive static destructors.
struct Turn {
  std::mutex mutex;
  std::condition_variable changed;
  bool taken = false;
};

Turn &turn() {
  static Turn *const t = new Turn;
  return *t;
}

// False when the job was cancelled while it waited.
bool take_turn(const hp_job &job) {
  std::unique_lock lock(turn().mutex);
  turn().changed.wait(lock, [&] { return !turn().taken || job.cancelled; });
  if (job.cancelled) return false;
  return turn().taken = true;
}

void end_turn() {
  const std::lock_guard lock(turn().mutex);
  turn().taken = false;
  turn().changed.notify_all();
}

// False when the job was cancelled meanwhile.
bool rest(hp_job &job, uint64_t ns) {
  std::unique_lock lock(job.mutex);
  return !job.changed.wait_until(lock, deadline_after(ns), [&] { return job.cancelled.load(); });
}

uint64_t elapsed(const hp_job &job) noexcept {
  return static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - job.started).count());
}

// Makes the pages of one chunk present while the driver pins the one before it.
class PrefaultAhead {
public:
  explicit PrefaultAhead(const hp_job &job) noexcept
      : how_{job.options.prefault_threads ? job.options.prefault_threads : job.state.config().prefault_threads,
             (job.region.flags & HP_REGISTER_HUGEPAGES) != 0, &job.cancelled, &huge_pages_slow_},
        wanted_(job.region.flags & HP_REGISTER_PREFAULT) {}

  void finish(const Extent &chunk) {  // this one is needed now
    if (!wanted_) return;
    if (thread_.joinable()) thread_.join();
    if (chunk.end > done_) prefault(chunk, how_);
    done_ = std::max(done_, chunk.end);
  }
  void start(const Extent &chunk) {  // this one is next
    if (!wanted_ || chunk.end <= done_) return;
    try {
      thread_ = std::jthread([this, chunk] { prefault(chunk, how_); });
      done_ = chunk.end;
    } catch (...) {  // no thread to be had: it is done when it is needed
    }
  }

private:
  std::atomic<bool> huge_pages_slow_{false};
  Prefault how_;
  bool wanted_;
  uint64_t done_ = 0;  // up to here, as chunks come in order
  std::jthread thread_;
};

void count_progress(hp_job &job, uint64_t pinned, uint64_t refused) noexcept {
  job.pinned_bytes = pinned;
  job.bytes_done = pinned + refused;
}

// False when a cancel came first. A later one finds the job ended.
bool decide(hp_job &job) {
  const std::lock_guard lock(job.mutex);
  job.decided = !job.cancelled;
  return job.decided;
}

enum class End { done, refused, cancelled };

// Pins chunk after chunk. After a refusal `where` is the one that was refused.
End pin_chunks(hp_job &job, Course &course, Extent &where) {
  const Registration &r = *course.work.registration;
  Registry &registry = job.state.registry;
  const uint64_t before = job.bytes_total - registry.unpinned_bytes(r);
  PrefaultAhead ahead(job);
  Clock::time_point give_up{};  // on a chunk that a capture is in the way of
  for (bool first = true; registry.next_unpinned(r, where, course.from); first = false) {
    if (!first && job.options.pause_ns && !rest(job, job.options.pause_ns)) return End::cancelled;
    Extent next;
    ahead.finish(where);
    if (registry.next_unpinned(r, next, where.end)) ahead.start(next);
    if (!take_turn(job)) return End::cancelled;
    const Step step = pin_step(course, job.report);
    end_turn();
    count_progress(job, before + course.bytes, 0);
    if (job.cancelled) return End::cancelled;
    if (course.outcome.failure != Failure::capture)
      give_up = {};
    else if (give_up == Clock::time_point{})
      give_up = Clock::now() + kCapturePatience;
    if (step == Step::refused && Clock::now() >= give_up) return End::refused;
    if (step == Step::refused && !rest(job, kCapturePauseNs)) return End::cancelled;
  }
  return End::done;
}

int32_t release_and_settle(hp_job &job, Registration &r, int32_t status, Kind kind = Kind::none) {
  release_all(job.selection, job.state.registry, r, job.report);
  job.pinned_bytes = 0;
  back_into_children(job.state, r);
  return job.state.registry.settle(r, job.region.len, kind) ? status : stuck(job.report);
}

// Gives back all that it has. `status` is for the case that the driver takes it; else the report says what it holds.
int32_t give_up(hp_job &job, Registration &r, int32_t status) {
  job.state.registry.abandon(r);
  return release_and_settle(job, r, status);
}

// A registration of the pages before `end` only. Segments behind it that were shared and are wanted by nobody any more
// are given back. Should the driver not take one, all is given up, so that it stays known under this base; and where a
// cancel comes.
int32_t keep(hp_job &job, const Course &course, Registration &r, uint64_t end) {
  Registry &registry = job.state.registry;
  const uint64_t kept = r.pages.size_before(end);
  registry.keep_until(r, end);
  release_all(job.selection, registry, r, job.report);
  const bool cancelled = !decide(job);
  if (cancelled || registry.any_stuck(r)) {
    registry.abandon_kept(r, end);
    if (cancelled) return release_and_settle(job, r, HP_E_CANCELLED);
    if (job.region.required()) return release_and_settle(job, r, HP_E_REFUSED);
    return release_and_settle(job, r, HP_PAGEABLE, Kind::pageable);
  }
  leave_out_of_children(job.state, job.region, r, end);
  registry.publish(r, job.region.len, end);
  job.pinned_bytes = kept;
  tell_of_refusal(course.outcome, job.report);
  return HP_PAGEABLE;
}

int32_t finish(hp_job &job, Course &course) {
  if (const DriverCall call; call.allowed() && job.selection.backend->enter) job.selection.backend->enter(job.device);
  Registry &registry = job.state.registry;
  Registration &r = *course.work.registration;
  leave_out_of_children(job.state, job.region, r);
  Extent where;
  std::optional<SharedMemoryLock> alone;
  if (job.region.flags & HP_REGISTER_SERIALIZE) alone.emplace(job.region.stretches, &job.cancelled);
  const End end = pin_chunks(job, course, where);
  if (alone) alone->release();
  switch (end) {
    case End::done:
      if (!decide(job)) break;
      registry.publish(r, job.region.len);
      job.report = {};
      return HP_OK;
    case End::refused: {
      if (!course.outcome.held) registry.next_unpinned(r, where);  // it may have become smaller
      count_progress(job, job.pinned_bytes, where.size());
      if (job.options.keep && r.pages.size_before(where.start) > 0) return keep(job, course, r, where.start);
      if (!decide(job)) break;
      job.pinned_bytes = 0;
      return roll_back(job.state, job.selection, course.outcome, r, job.region.len, job.region.required(), job.report);
    }
    case End::cancelled: break;
  }
  job.report = {};
  return give_up(job, r, HP_E_CANCELLED);
}

int32_t run_course(hp_job &job) {
  if (job.selection.backend == &kNone)
    return decide(job) ? unavailable(job.state, job.selection, job.region, job.report) : HP_E_CANCELLED;
  // Its own thread makes pages present, ahead of this one.
  Course course{job.state, job.selection, job.region.flags & ~HP_REGISTER_PREFAULT, {}};
  const uint64_t chunk = job.options.chunk_bytes ? job.options.chunk_bytes : kDefaultChunk;
  int32_t status = HP_OK;
  if (is_hopeless(job.state, job.selection, job.region, status, job.report)) return status;
  status = reserve(job.state, job.selection, job.region, chunk, &job.cancelled, course.work, job.report);
  if (status != HP_OK) return status;
  if (course.work.registration) return finish(job, course);
  // Registered before, and counted.
  if (!decide(job)) {
    if (unregister(job.state, job.region.base, job.report) == HP_E_STUCK) return HP_E_STUCK;
    job.report = {};  // another thread may have ended it
    return HP_E_CANCELLED;
  }
  job.bytes_done = job.pinned_bytes = job.bytes_total.load();
  return HP_OK;
}

void run_job(void *argument) {
  auto *job = static_cast<hp_job *>(argument);
  int32_t status = HP_E_NO_MEMORY;
  try {
    status = run_course(*job);
  } catch (...) {
  }
  {
    const std::lock_guard lock(job->mutex);
    job->status = status;
    job->elapsed_ns = elapsed(*job);
    job->done = true;
    job->changed.notify_all();
  }
  free_job(job);
}

}  // namespace

int32_t start_job(State &state, uint64_t base, uint64_t len, std::vector<Extent> stretches,
                  std::vector<Extent> inner, uint32_t flags, const hp_job_options &options, hp_job *&job) {
  turn();  // made where a want of memory is still a status
  auto made = std::make_unique<hp_job>(state, selection(state.config()), base, len, std::move(stretches),
                                       std::move(inner), flags, options);
  start_background(run_job, made.get());
  job = made.release();
  return HP_OK;
}

// The handle may be freed by another thread while one is in here.
class Hold {
public:
  explicit Hold(hp_job &job) noexcept : job_(job) { ++job.holders; }
  ~Hold() { free_job(&job_); }
  Hold(const Hold &) = delete;
  Hold &operator=(const Hold &) = delete;

private:
  hp_job &job_;
};

void poll_job(hp_job &job, hp_progress &out) noexcept {
  const Hold hold(job);
  out = {};
  out.struct_size = sizeof(out);
  const std::lock_guard lock(job.mutex);
  out.state = job.done ? HP_JOB_DONE : HP_JOB_RUNNING;
  out.status = job.status;
  out.bytes_done = job.bytes_done;
  out.bytes_total = job.bytes_total;
  out.pinned_bytes = job.pinned_bytes;
  out.elapsed_ns = job.done ? job.elapsed_ns : elapsed(job);
}

int32_t wait_for_job(hp_job &job, uint64_t timeout_ns, Report &report) {
  const Hold hold(job);
  std::unique_lock lock(job.mutex);
  if (!job.changed.wait_until(lock, deadline_after(timeout_ns), [&] { return job.done; })) {
    report.text.add("hp_job_wait: the deadline of %llu ns passed; the job goes on",
                    static_cast<unsigned long long>(timeout_ns));
    return HP_E_TIMEOUT;
  }
  report = job.report;
  return job.status;
}

void cancel_job(hp_job &job) noexcept {
  const Hold hold(job);
  {
    const std::lock_guard lock(job.mutex);
    if (job.decided) return;
    job.cancelled = true;
    job.changed.notify_all();
  }
  {
    const std::lock_guard lock(turn().mutex);
    turn().changed.notify_all();
  }
  job.state.registry.look_again();
}

void free_job(hp_job *job) noexcept {
  if (--job->holders == 0) delete job;
}

}  // namespace hp
