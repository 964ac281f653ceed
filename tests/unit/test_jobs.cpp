// Registrations in the background. What a job does while the driver pins is seen by stopping the driver inside a call.
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <thread>

#include "register_test.h"

using namespace test;

namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kChunk = 2 * kMiB;

// Anonymous memory on a multiple of 2 MiB, where cuts are made.
class Pool {
public:
  explicit Pool(uint64_t chunks) : memory_((chunks + 1) * kChunk), offset_((kChunk - memory_.address() % kChunk) % kChunk) {}
  void *at(uint64_t offset = 0) const { return memory_.at(offset_ + offset); }
  void *chunk(uint64_t number) const { return at(number * kChunk); }

private:
  Memory memory_;
  uint64_t offset_;
};

hp_job_options options(uint64_t chunk = kChunk) {
  hp_job_options o{};
  o.struct_size = sizeof(o);
  o.chunk_bytes = chunk;
  return o;
}

// A job whose handle is given back at the end.
class Job {
public:
  Job(void *base, const std::vector<hp_range> &ranges, uint32_t flags = HP_REGISTER_REQUIRED,
      const hp_job_options &how = options()) {
    REQUIRE(hp_register_start(base, ranges.data(), ranges.size(), flags, &how, &job_) == HP_OK);
    REQUIRE(job_);
  }
  ~Job() { free(); }
  Job(const Job &) = delete;
  Job &operator=(const Job &) = delete;

  int32_t wait(uint64_t timeout_ns = kNoLimit) { return hp_job_wait(job_, timeout_ns); }
  int32_t cancel() { return hp_job_cancel(job_); }
  void free() {
    hp_job_free(job_);
    job_ = nullptr;
  }
  hp_progress poll() {
    hp_progress p{};
    p.struct_size = sizeof(p);
    REQUIRE(hp_job_poll(job_, &p) == HP_OK);
    return p;
  }

private:
  hp_job *job_ = nullptr;
};

// Stops the driver before each register call until it is let through, and counts how many were inside at once.
class Driver {
public:
  Driver() { hps_on_call(&enter, this); }
  ~Driver() {
    let(UINT64_MAX / 2);
    hps_on_call(nullptr, nullptr);
  }
  Driver(const Driver &) = delete;
  Driver &operator=(const Driver &) = delete;

  void wait_for_call(uint64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return entered_ >= number; });
  }
  void let(uint64_t more) {
    const std::lock_guard lock(mutex_);
    allowed_ += more;
    changed_.notify_all();
  }
  uint64_t entered() {
    const std::lock_guard lock(mutex_);
    return entered_;
  }
  unsigned most_at_once() {
    const std::lock_guard lock(mutex_);
    return most_;
  }

private:
  static void enter(const char *function, const void *, size_t, void *user) {
    hps_call call{};
    call.function = function;
    if (!is_register(call)) return;
    auto *d = static_cast<Driver *>(user);
    std::unique_lock lock(d->mutex_);
    const uint64_t number = ++d->entered_;
    d->most_ = std::max(d->most_, ++d->inside_);
    d->changed_.notify_all();
    d->changed_.wait(lock, [&] { return d->allowed_ >= number; });
    --d->inside_;
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t entered_ = 0, allowed_ = 0;
  unsigned inside_ = 0, most_ = 0;
};

// Gives a thread that should be waiting the time to do the wrong thing. Never decides a test that goes well.
void a_moment() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

void wait_for_bytes(Job &job, uint64_t bytes) {
  while (job.poll().bytes_done < bytes) std::this_thread::yield();
}

}  // namespace

TEST_CASE("a job registers, and its handle tells how far it is") {
  const Fresh fresh("trace=1");
  const Pool pool(4);
  const uint64_t total = 3 * kChunk + page();
  Job job(pool.at(5), {{0, total - 10}}, 0);
  CHECK(job.wait() == HP_OK);
  const hp_progress p = job.poll();
  CHECK(p.state == HP_JOB_DONE);
  CHECK(p.status == HP_OK);
  CHECK(p.bytes_total == total);
  CHECK(p.bytes_done == total);
  CHECK(p.pinned_bytes == total);
  CHECK(p.elapsed_ns > 0);
  CHECK(job.poll().elapsed_ns == p.elapsed_ns);
  CHECK(hps_pinned(pool.at(), total) == HPS_ALL);
  const auto made = traced(is_register);
  REQUIRE(made.size() == 4);
  for (size_t i = 0; i < 4; ++i) CHECK(made[i].ptr == pool.chunk(i));
  CHECK(stats().registrations == 1);
  CHECK(region(pool.at(5), total - 10).references == 1);
  job.free();
  CHECK(hp_query(pool.at(), total, nullptr) == HP_OK);
  CHECK(hp_unregister(pool.at(5)) == HP_OK);
}

TEST_CASE("the start returns while the driver has not") {
  const Fresh fresh;
  const Pool pool(2);
  hps_block("register");
  Job job(pool.at(), {{0, 2 * kChunk}});
  REQUIRE(hps_wait_blocked("register", 1, 60000) == 0);
  const hp_progress p = job.poll();
  CHECK(p.state == HP_JOB_RUNNING);
  CHECK(p.status == 0);
  CHECK(p.bytes_done == 0);
  CHECK(p.pinned_bytes == 0);
  CHECK(p.bytes_total == 2 * kChunk);
  CHECK(job.poll().elapsed_ns >= p.elapsed_ns);
  CHECK(job.wait(0) == HP_E_TIMEOUT);
  CHECK(job.wait(1000) == HP_E_TIMEOUT);
  CHECK(contains(hp_last_error(), "deadline"));
  CHECK(hp_query(pool.at(), 1, nullptr) == HP_PAGEABLE);
  hps_unblock("register");
  CHECK(job.wait() == HP_OK);
  CHECK(job.wait(0) == HP_OK);
  CHECK(hp_unregister(pool.at()) == HP_OK);
}

TEST_CASE("chunks that are pinned are usable before the end, and progress is exact") {
  const Fresh fresh;
  const Pool pool(4);
  Driver driver;
  Job job(pool.at(), {{0, 4 * kChunk}});
  for (uint64_t n = 0; n < 4; ++n) {
    driver.wait_for_call(n + 1);
    const hp_progress p = job.poll();
    CHECK(p.state == HP_JOB_RUNNING);
    CHECK(p.bytes_done == n * kChunk);
    CHECK(p.pinned_bytes == n * kChunk);
    if (n) {
      const hp_region r = region(pool.chunk(n - 1), kChunk);
      CHECK(r.one_segment == 1);
      CHECK(r.end - r.start == kChunk);
      void *device = nullptr;
      CHECK(hp_device_pointer(pool.chunk(n - 1), &device) == HP_OK);
    }
    CHECK(hp_query(pool.chunk(n), 1, nullptr) == HP_PAGEABLE);
    CHECK(stats().pinned_bytes == n * kChunk);
    CHECK(stats().registrations == 0);
    driver.let(1);
  }
  CHECK(job.wait() == HP_OK);
  CHECK(stats().registrations == 1);
  CHECK(hp_unregister(pool.at()) == HP_OK);
}

TEST_CASE("chunks are cut at multiples of 2 MiB, and only in ranges that are longer") {
  const Fresh fresh("trace=1");
  const Pool pool(16);
  const uint64_t p = page();
  // The second range is as long as a chunk, and stays whole though it lies on no border.
  Job job(pool.at(), {{3 * p, 5 * kChunk}, {6 * kChunk + p, 8 * kChunk + p}, {9 * kChunk, 9 * kChunk + p}},
          HP_REGISTER_REQUIRED, options(2 * kChunk));
  REQUIRE(job.wait() == HP_OK);
  std::vector<hp_range> made;
  for (const hps_call &call : traced(is_register)) {
    const auto start = static_cast<uint64_t>(static_cast<const char *>(call.ptr) - static_cast<char *>(pool.at()));
    made.push_back({start, start + call.length});
  }
  const std::vector<hp_range> expected = {{3 * p, 2 * kChunk}, {2 * kChunk, 4 * kChunk}, {4 * kChunk, 5 * kChunk},
                                          {6 * kChunk + p, 8 * kChunk + p}, {9 * kChunk, 9 * kChunk + p}};
  REQUIRE(made.size() == expected.size());
  for (size_t i = 0; i < made.size(); ++i) {
    CHECK(made[i].start == expected[i].start);
    CHECK(made[i].end == expected[i].end);
  }
  CHECK(job.poll().bytes_total == 7 * kChunk - 2 * p);
  CHECK(hp_unregister(pool.at()) == HP_OK);
}

TEST_CASE("without options a chunk has 1 GiB") {
  const Fresh fresh("trace=1");
  const Memory memory(5 * kGiB);
  const hp_range range = {0, memory.size()};
  hp_job *job = nullptr;
  REQUIRE(hp_register_start(memory.at(), &range, 1, 0, nullptr, &job) == HP_OK);
  CHECK(hp_job_wait(job, kNoLimit) == HP_OK);
  hp_job_free(job);
  const auto made = traced(is_register);
  CHECK(made.size() >= 5);
  CHECK(made.size() <= 6);  // the first chunk ends at a multiple of 2 MiB
  for (const hps_call &call : made) CHECK(call.length <= kGiB);
  CHECK(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("a range that is registered already is counted") {
  const Fresh fresh;
  const Pool pool(2);
  Job first(pool.at(), {{0, 2 * kChunk}});
  REQUIRE(first.wait() == HP_OK);
  const uint64_t calls = hps_calls("register");
  Job second(pool.at(), {{0, 2 * kChunk}});
  CHECK(second.wait() == HP_OK);
  CHECK(second.poll().bytes_done == 2 * kChunk);
  CHECK(second.poll().pinned_bytes == 2 * kChunk);
  Job third(pool.at(), {{0, kChunk}});
  CHECK(third.wait() == HP_E_EXISTS);
  CHECK(contains(hp_last_error(), "unregister it first"));
  CHECK(third.poll().status == HP_E_EXISTS);
  CHECK(hps_calls("register") == calls);
  CHECK(hp_unregister(pool.at()) == HP_OK);
  CHECK(hp_unregister(pool.at()) == HP_OK);
}

// ---- Cancelling

TEST_CASE("a job that is cancelled makes no other driver call, and releases what it has") {
  const Fresh fresh("trace=1");
  const Pool pool(6);
  const uint32_t keep = GENERATE(0u, 1u);
  Driver driver;
  hp_job_options how = options();
  how.keep = keep;
  Job job(pool.at(), {{0, 6 * kChunk}}, 0, how);
  driver.let(2);
  driver.wait_for_call(3);
  std::thread([&] { job.cancel(); }).join();
  CHECK(job.poll().state == HP_JOB_RUNNING);
  driver.let(100);
  CHECK(job.wait() == HP_E_CANCELLED);
  CHECK(driver.entered() == 3);
  const auto released = traced(is_unregister);
  REQUIRE(released.size() == 3);
  for (size_t i = 0; i < 3; ++i) CHECK(released[i].ptr == pool.chunk(2 - i));
  const hp_progress p = job.poll();
  CHECK(p.state == HP_JOB_DONE);
  CHECK(p.status == HP_E_CANCELLED);
  CHECK(p.pinned_bytes == 0);
  CHECK(hps_live_registrations() == 0);
  CHECK(hp_unregister(pool.at()) == HP_E_NOT_FOUND);
  CHECK(job.cancel() == HP_OK);
  CHECK(job.wait() == HP_E_CANCELLED);
}

TEST_CASE("a job that is cancelled inside a call that is refused keeps nothing") {
  const Fresh fresh;
  const Pool pool(4);
  Driver driver;
  hp_job_options how = options();
  how.keep = 1;
  fail_next("register", 801, 1, 2);
  Job job(pool.at(), {{0, 4 * kChunk}}, 0, how);
  driver.let(2);
  driver.wait_for_call(3);
  CHECK(job.cancel() == HP_OK);
  driver.let(100);
  CHECK(job.wait() == HP_E_CANCELLED);
  CHECK(hps_live_registrations() == 0);
}

TEST_CASE("a job that keeps what it has is all given up where what lies behind cannot be released") {
  const Fresh fresh;
  const Pool pool(4);
  REQUIRE(hp_register(pool.chunk(3), kChunk, 0) == HP_OK);
  hp_job_options how = options();
  how.keep = 1;
  Driver driver;
  fail_next("register", 801, 1, 1);
  Job job(pool.at(), {{0, 4 * kChunk}}, 0, how);
  driver.wait_for_call(1);
  REQUIRE(hp_unregister(pool.chunk(3)) == HP_OK);  // now the job's alone
  fail_next("unregister", 1);
  driver.let(100);
  CHECK(job.wait() == HP_E_STUCK);
  CHECK(contains(hp_last_error(), "do not unmap"));
  CHECK(job.poll().pinned_bytes == 0);
  CHECK(hps_live_registrations() == 1);
  CHECK(region(pool.chunk(3), kChunk).stuck == 1);
  CHECK(hp_query(pool.at(), kChunk, nullptr) == HP_PAGEABLE);
  CHECK(hp_unregister(pool.at()) == HP_OK);
}

TEST_CASE("what others pin behind the part that a job keeps stays theirs when the job gives that up, too") {
  const Fresh fresh;
  const Pool pool(6);
  REQUIRE(hp_register(pool.chunk(3), kChunk, 0) == HP_OK);
  hp_job_options how = options();
  how.keep = 1;
  fail_next("register", 801, 1, 1);
  Driver driver;
  Job job(pool.at(), {{0, 6 * kChunk}}, 0, how);
  driver.wait_for_call(1);
  REQUIRE(hp_unregister(pool.chunk(3)) == HP_OK);  // now the job's alone
  hps_block("unregister");
  fail_next("unregister", 1);
  driver.let(100);
  REQUIRE(hps_wait_blocked("unregister", 1, 60000) == 0);
  CHECK(hp_register(pool.chunk(5), kChunk, 0) == HP_OK);
  hps_unblock("unregister");
  CHECK(job.wait() == HP_E_STUCK);
  CHECK(hp_query(pool.chunk(5), kChunk, nullptr) == HP_OK);
  CHECK(hps_pinned(pool.chunk(5), kChunk) == HPS_ALL);
  CHECK(hp_unregister(pool.chunk(5)) == HP_OK);
  CHECK(hp_unregister(pool.at()) == HP_OK);
  CHECK(hps_live_registrations() == 0);
}

TEST_CASE("a job that is cancelled while it releases what it does not keep gives up all") {
  const Fresh fresh;
  const Pool pool(4);
  REQUIRE(hp_register(pool.chunk(3), kChunk, 0) == HP_OK);
  hp_job_options how = options();
  how.keep = 1;
  fail_next("register", 801, 1, 1);
  Driver driver;
  Job job(pool.at(), {{0, 4 * kChunk}}, 0, how);
  driver.wait_for_call(1);
  REQUIRE(hp_unregister(pool.chunk(3)) == HP_OK);
  hps_block("unregister");
  driver.let(100);
  REQUIRE(hps_wait_blocked("unregister", 1, 60000) == 0);
  CHECK(job.cancel() == HP_OK);
  hps_unblock("unregister");
  CHECK(job.wait() == HP_E_CANCELLED);
  CHECK(hps_live_registrations() == 0);
  CHECK(hp_unregister(pool.at()) == HP_E_NOT_FOUND);
}

TEST_CASE("a cancelled job on what is registered already is not counted") {
  const Fresh fresh;
  const Pool pool(1);
  REQUIRE(hp_register(pool.at(), kChunk, 0) == HP_OK);
  int cancelled = 0;
  for (int i = 0; i < 200; ++i) {
    Job job(pool.at(), {{0, kChunk}});
    job.cancel();
    const int32_t status = job.wait();
    CHECK((status == HP_OK || status == HP_E_CANCELLED));
    cancelled += status == HP_E_CANCELLED;
    if (status == HP_OK) REQUIRE(hp_unregister(pool.at()) == HP_OK);  // it had ended before
  }
  CHECK(cancelled > 0);
  CHECK(region(pool.at(), kChunk).references == 1);
  CHECK(hp_unregister(pool.at()) == HP_OK);
}

TEST_CASE("a handle may be freed while other threads wait for the job") {
  const Fresh fresh;
  const Pool pool(1);
  Driver driver;
  const hp_range range = {0, kChunk};
  hp_job *job = nullptr;
  REQUIRE(hp_register_start(pool.at(), &range, 1, 0, nullptr, &job) == HP_OK);
  driver.wait_for_call(1);
  std::atomic<int> well{0};
  std::vector<std::thread> waiting;
  for (int i = 0; i < 4; ++i) waiting.emplace_back([&] { well += hp_job_wait(job, kNoLimit) == HP_OK; });
  a_moment();
  hp_job_free(job);
  driver.let(100);
  for (std::thread &t : waiting) t.join();
  CHECK(well == 4);
  CHECK(hp_unregister(pool.at()) == HP_OK);
}

TEST_CASE("a job that waits for its turn can be cancelled") {
  const Fresh fresh;
  const Pool pool(8);
  Driver driver;
  Job first(pool.at(), {{0, kChunk}});
  driver.wait_for_call(1);
  Job second(pool.chunk(4), {{0, kChunk}});
  a_moment();
  CHECK(second.poll().state == HP_JOB_RUNNING);
  CHECK(second.cancel() == HP_OK);
  CHECK(second.wait() == HP_E_CANCELLED);
  CHECK(driver.entered() == 1);
  driver.let(100);
  CHECK(first.wait() == HP_OK);
  CHECK(hp_unregister(pool.at()) == HP_OK);
}

TEST_CASE("a job that waits for pages which another thread is pinning can be cancelled") {
  const Fresh fresh;
  const Pool pool(4);
  hps_block("register");
  std::thread other([&] { CHECK(hp_register(pool.at(), 2 * kChunk, 0) == HP_OK); });
  REQUIRE(hps_wait_blocked("register", 1, 60000) == 0);
  Job job(pool.chunk(1), {{0, 2 * kChunk}});
  a_moment();
  CHECK(job.poll().state == HP_JOB_RUNNING);
  CHECK(job.cancel() == HP_OK);
  CHECK(job.wait() == HP_E_CANCELLED);
  CHECK(hp_unregister(pool.chunk(1)) == HP_E_NOT_FOUND);
  hps_unblock("register");
  other.join();
  CHECK(hps_calls("register") == 1);
  CHECK(hp_unregister(pool.at()) == HP_OK);
}

TEST_CASE("a job that rests between chunks can be cancelled") {
  const Fresh fresh;
  const Pool pool(4);
  hp_job_options how = options();
  how.pause_ns = GENERATE(3600 * kSecond, uint64_t{INT64_MAX});
  Job job(pool.at(), {{0, 4 * kChunk}}, 0, how);
  wait_for_bytes(job, kChunk);
  a_moment();
  CHECK(job.poll().bytes_done == kChunk);
  CHECK(job.cancel() == HP_OK);
  CHECK(job.wait() == HP_E_CANCELLED);
}

TEST_CASE("the end of a job does not wait for a pause") {
  const Fresh fresh;
  const Pool pool(4);
  hp_job_options how = options(4 * kChunk);
  how.pause_ns = 3600 * kSecond;
  Job job(pool.at(), {{0, 4 * kChunk}}, 0, how);
  CHECK(job.wait(60 * kSecond) == HP_OK);
  CHECK(hp_unregister(pool.at()) == HP_OK);
}

TEST_CASE("what a cancelled job cannot release is stuck") {
  const Fresh fresh;
  const Pool pool(4);
  Driver driver;
  fail_next("unregister", 1);
  Job job(pool.at(), {{0, 4 * kChunk}});
  driver.let(1);
  driver.wait_for_call(2);
  job.cancel();
  driver.let(100);
  CHECK(job.wait() == HP_E_STUCK);
  CHECK(contains(hp_last_error(), "do not unmap"));
  CHECK(stats().stuck_segments == 1);
  CHECK(hp_unregister(pool.at()) == HP_OK);
}

// ---- Refusals

TEST_CASE("after a refusal all is given back, or what is pinned is kept") {
  const Fresh fresh;
  const Pool pool(5);
  const uint32_t keep = GENERATE(0u, 1u);
  const uint32_t flags = GENERATE(0u, HP_REGISTER_REQUIRED);
  const uint64_t good = GENERATE(0, 1, 3);
  CAPTURE(keep, flags, good);
  fail_next("register", 801, 1, good);
  hp_job_options how = options();
  how.keep = keep;
  Job job(pool.at(), {{0, 3 * kChunk}, {4 * kChunk, 5 * kChunk}}, flags, how);
  const bool kept = keep && good;
  CHECK(job.wait() == (flags && !kept ? HP_E_REFUSED : HP_PAGEABLE));
  CHECK(hp_last_native_error() == 801);
  CHECK(contains(hp_last_error(), register_name()));
  const hp_progress p = job.poll();
  CHECK(p.bytes_done == (good + 1) * kChunk);
  CHECK(p.bytes_total == 4 * kChunk);
  CHECK(p.pinned_bytes == (kept ? good * kChunk : 0));
  CHECK(hps_live_registrations() == (kept ? good : 0));
  CHECK(stats().registrations == (kept ? 1u : 0u));
  if (kept) CHECK(hp_query(pool.at(), good * kChunk, nullptr) == HP_OK);
  CHECK(hp_query(pool.at(), good * kChunk + 1, nullptr) == HP_PAGEABLE);
  CHECK(hp_unregister(pool.at()) == (flags && !kept ? HP_E_NOT_FOUND : HP_OK));
}

TEST_CASE("a job that is refused is told of in the log, also if it keeps a part") {
  const Fresh fresh;
  const Pool pool(3);
  const Log log;
  static int code = 30000;  // a cause is logged once
  hp_job_options how = options();
  how.keep = GENERATE(0u, 1u);
  fail_next("register", ++code, 1, 1);
  Job job(pool.at(), {{0, 3 * kChunk}}, 0, how);
  CHECK(job.wait() == HP_PAGEABLE);
  CHECK(log.count(std::to_string(code)) == 1);
  CHECK(log.lines().size() == 1);
  CHECK(hp_unregister(pool.at()) == HP_OK);
}

TEST_CASE("chunks are made smaller after a refusal") {
  const Fresh fresh("max_pin=512M");
  const Memory memory(4 * kGiB);
  Job job(memory.at(), {{0, memory.size()}}, HP_REGISTER_REQUIRED, options(2 * kGiB));
  CHECK(job.wait() == HP_OK);
  CHECK(hps_pinned(memory.at(), memory.size()) == HPS_ALL);
  CHECK(job.poll().bytes_done == memory.size());
  CHECK(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("a capture is waited for, and not surfaced") {
  const Fresh fresh("trace=1");
  const Pool pool(3);
  fail_next("register", 900, 5, 1);
  Job job(pool.at(), {{0, 3 * kChunk}});
  CHECK(job.wait() == HP_OK);
  uint64_t refused = 0;
  for (const hps_call &call : traced(is_register)) refused += call.code == 900;
  CHECK(refused == 5);
  CHECK(job.poll().bytes_done == 3 * kChunk);
  CHECK(hp_unregister(pool.at()) == HP_OK);
}

TEST_CASE("a capture is waited for however long the job has run") {
  const Fresh fresh;
  const Pool pool(2);
  Driver driver;
  script("fail=register:1:900,fail=register:3:900");
  Job job(pool.at(), {{0, 2 * kChunk}});
  driver.let(2);
  driver.wait_for_call(3);
  std::this_thread::sleep_for(std::chrono::milliseconds(5500));  // longer than a capture is waited for
  driver.let(100);
  CHECK(job.wait() == HP_OK);
  CHECK(hp_unregister(pool.at()) == HP_OK);
}

TEST_CASE("a capture that does not end is a refusal") {
  const Fresh fresh;
  const Pool pool(2);
  fail_next("register", 900, 1000000, 1);
  Job job(pool.at(), {{0, 2 * kChunk}});
  CHECK(job.wait() == HP_E_REFUSED);
  CHECK(hp_last_native_error() == 900);
  CHECK(contains(hp_last_error(), "capture"));
  CHECK(hps_live_registrations() == 0);
}

TEST_CASE("a job that waits for a capture can be cancelled") {
  const Fresh fresh;
  const Pool pool(2);
  fail_next("register", 900, 1000000, 1);
  Job job(pool.at(), {{0, 2 * kChunk}});
  wait_for_bytes(job, kChunk);
  CHECK(job.cancel() == HP_OK);
  CHECK(job.wait() == HP_E_CANCELLED);
}

// ---- Handles

TEST_CASE("a job whose handle is given back goes on by itself") {
  const Fresh fresh;
  const Pool pool(4);
  Driver driver;
  {
    Job job(pool.at(), {{0, 4 * kChunk}});
    driver.wait_for_call(1);
  }
  driver.let(3);
  driver.wait_for_call(4);
  CHECK(hp_query(pool.at(), 3 * kChunk, nullptr) == HP_OK);
  CHECK(hp_query(pool.chunk(3), 1, nullptr) == HP_PAGEABLE);
  // Its end is waited for.
  std::atomic<bool> ended{false};
  std::thread end([&] {
    if (hp_unregister(pool.at()) == HP_OK) ended = true;
  });
  a_moment();
  CHECK_FALSE(ended);
  driver.let(100);
  end.join();
  CHECK(ended);
  CHECK(driver.entered() == 4);
  CHECK(hps_live_registrations() == 0);
}

TEST_CASE("a handle that is given back after a cancel leaves nothing behind") {
  const Fresh fresh;
  const Pool pool(4);
  Driver driver;
  {
    Job job(pool.at(), {{0, 4 * kChunk}});
    driver.wait_for_call(1);
    CHECK(job.cancel() == HP_OK);
  }
  driver.let(100);
  CHECK(hp_unregister_all(kNoLimit) == HP_OK);  // waits for what is under way
  CHECK(hps_live_registrations() == 0);
  CHECK(driver.entered() == 1);
}

TEST_CASE("several threads wait for one job, and cancel it") {
  const Fresh fresh;
  const Pool pool(64);
  for (int round = 0; round < 20; ++round) {
    Job job(pool.at(), {{0, 64 * kChunk}});
    std::atomic<int> different{0};
    std::atomic<int32_t> first{INT32_MAX};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        if (t == round % 4) job.cancel();
        const int32_t status = job.wait();
        int32_t none = INT32_MAX;
        if (!first.compare_exchange_strong(none, status)) different += none != status;
      });
    for (auto &t : threads) t.join();
    CHECK(different == 0);
    CHECK((first == HP_OK || first == HP_E_CANCELLED));
    CHECK(hp_unregister(pool.at()) == (first == HP_OK ? HP_OK : HP_E_NOT_FOUND));
  }
}

TEST_CASE("jobs make one driver call at a time, and all of them end") {
  const Fresh fresh("delay=register:1");
  const Pool pool(64);
  Driver driver;
  std::vector<std::unique_ptr<Job>> jobs;
  for (uint64_t i = 0; i < 6; ++i) jobs.push_back(std::make_unique<Job>(pool.chunk(8 * i), std::vector<hp_range>{{0, 8 * kChunk}}));
  driver.wait_for_call(1);
  a_moment();
  CHECK(driver.entered() == 1);
  driver.let(1000);
  for (auto &job : jobs) CHECK(job->wait() == HP_OK);
  CHECK(driver.entered() == 48);
  CHECK(driver.most_at_once() == 1);
  CHECK(hp_unregister_all(kNoLimit) == HP_OK);
}

TEST_CASE("while a job is inside the driver, others register without it") {
  const Fresh fresh;
  const Pool pool(8);
  hps_block("register");
  Job job(pool.at(), {{0, kChunk}});
  REQUIRE(hps_wait_blocked("register", 1, 60000) == 0);
  std::thread other([&] {
    if (hp_register(pool.chunk(4), kChunk, 0) != HP_OK) std::abort();
  });
  CHECK(hps_wait_blocked("register", 2, 60000) == 0);
  hps_unblock("register");
  other.join();
  CHECK(job.wait() == HP_OK);
  CHECK(hp_unregister_all(kNoLimit) == HP_OK);
}

TEST_CASE("a pause lies between driver calls") {
  const Fresh fresh;
  const Pool pool(3);
  hp_job_options how = options();
  how.pause_ns = kSecond / 20;
  Job job(pool.at(), {{0, 3 * kChunk}}, 0, how);
  CHECK(job.wait() == HP_OK);
  CHECK(job.poll().elapsed_ns >= 2 * how.pause_ns);  // a pause is never shorter
  CHECK(hp_unregister(pool.at()) == HP_OK);
}

TEST_CASE("pages are made present ahead of the driver") {
  const Fresh fresh;
  const Pool pool(3);
  unsigned char present[kChunk / 4096] = {};
  const auto all_present = [&](uint64_t chunk) {
    REQUIRE(mincore(pool.chunk(chunk), kChunk, present) == 0);
    return std::all_of(std::begin(present), std::begin(present) + kChunk / page(), [](unsigned char p) { return p & 1; });
  };
  Driver driver;
  hp_job_options how = options();
  how.prefault_threads = 2;
  CHECK_FALSE(all_present(0));
  Job job(pool.at(), {{0, 3 * kChunk}}, HP_REGISTER_PREFAULT | HP_REGISTER_REQUIRED, how);
  driver.wait_for_call(1);
  CHECK(all_present(0));
  while (!all_present(1)) a_moment();  // while the first is in the driver
  CHECK_FALSE(all_present(2));
  driver.let(100);
  CHECK(job.wait() == HP_OK);
  CHECK(all_present(2));
  CHECK(hp_unregister(pool.at()) == HP_OK);
}

// ---- The caller's device

TEST_CASE("a job pins on the device that is current in its caller", "[context]") {
  const Fresh fresh;
  const Pool pool(2);
  hps_activate_context(0);
  const int device = GENERATE(1, 2);
  std::thread([&] {
    hps_set_current_context(device);
    // A thread that has a context has initialised the driver.
    vendor_call(is_driver_only() ? runtime_file() : "libcuda.so.1", "cuInit", 0u);
    Job job(pool.at(), {{0, 2 * kChunk}});
    if (job.wait() != HP_OK || hps_current_context() != device) std::abort();
    hps_set_current_context(-1);
  }).join();
  REQUIRE(pinned_by_driver().size() == 2);
  for (const hps_registration &r : pinned_by_driver()) CHECK(r.device == device);
  CHECK(hps_contexts_created(-1) == 0);
  CHECK(hp_unregister(pool.at()) == HP_OK);
}

// ---- Arguments

TEST_CASE("faulty arguments of a start are named, and no job is made") {
  const Fresh fresh;
  const Pool pool(1);
  const hp_range range = {0, kChunk};
  hp_job *job = reinterpret_cast<hp_job *>(1);
  const auto refused = [&](const hp_job_options *how, const char *what) {
    job = reinterpret_cast<hp_job *>(1);
    CHECK(hp_register_start(pool.at(), &range, 1, 0, how, &job) == HP_E_INVALID);
    CHECK(job == nullptr);
    CAPTURE(what, std::string(hp_last_error()));
    CHECK(contains(hp_last_error(), "hp_register_start"));
    CHECK(contains(hp_last_error(), what));
  };
  hp_job_options how = options();
  how.struct_size = sizeof(how) - 8;
  refused(&how, "struct_size");
  how = options();
  how.keep = 2;
  refused(&how, "keep");
  how = options(page() - 1);
  refused(&how, "chunk_bytes");
  how = options();
  how.pause_ns = uint64_t{INT64_MAX} + 1;
  refused(&how, "pause_ns");
  how = options();
  how.reserved0 = 1;
  refused(&how, "reserved");
  how = options();
  how.reserved[3] = 1;
  refused(&how, "reserved");
  CHECK(hp_register_start(nullptr, &range, 1, 0, nullptr, &job) == HP_E_INVALID);
  CHECK(hp_register_start(pool.at(), nullptr, 1, 0, nullptr, &job) == HP_E_INVALID);
  CHECK(hp_register_start(pool.at(), &range, 0, 0, nullptr, &job) == HP_E_INVALID);
  CHECK(hp_register_start(pool.at(), &range, 1, 0x20, nullptr, &job) == HP_E_INVALID);
  CHECK(hp_register_start(pool.at(), &range, 1, 0, nullptr, nullptr) == HP_E_INVALID);
  CHECK(hp_job_wait(nullptr, 0) == HP_E_INVALID);
  CHECK(hp_job_cancel(nullptr) == HP_E_INVALID);
  hp_progress p{};
  CHECK(hp_job_poll(nullptr, &p) == HP_E_INVALID);
  hp_job_free(nullptr);
  CHECK(pin_calls() == 0);
  REQUIRE(hp_register_start(pool.at(), &range, 1, 0, nullptr, &job) == HP_OK);
  CHECK(hp_job_wait(job, kNoLimit) == HP_OK);
  p.struct_size = sizeof(p) + 1;
  CHECK(hp_job_poll(job, &p) == HP_E_INVALID);
  CHECK(hp_job_poll(job, nullptr) == HP_E_INVALID);
  hp_job_free(job);
  CHECK(hp_unregister(pool.at()) == HP_OK);
}

// ---- The process

namespace {

template <class Body>
int status_of_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    body();
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace

TEST_CASE("a forked child has the handle, and nothing is done with it") {
  const Fresh fresh;
  const Pool pool(2);
  Driver driver;
  hp_job *job = nullptr;
  const hp_range range = {0, 2 * kChunk};
  REQUIRE(hp_register_start(pool.at(), &range, 1, 0, nullptr, &job) == HP_OK);
  driver.wait_for_call(1);
  CHECK(status_of_child([&] {
    hp_progress p{};
    p.struct_size = sizeof(p);
    hp_job *other = nullptr;
    const bool right = hp_job_poll(job, &p) == HP_E_FORKED && hp_job_wait(job, kNoLimit) == HP_E_FORKED &&
                       hp_job_cancel(job) == HP_E_FORKED &&
                       hp_register_start(pool.at(), &range, 1, 0, nullptr, &other) == HP_E_FORKED;
    hp_job_free(job);
    if (!right) _exit(1);
  }) == 0);
  driver.let(100);
  CHECK(hp_job_wait(job, kNoLimit) == HP_OK);
  hp_job_free(job);
  CHECK(hp_unregister(pool.at()) == HP_OK);
}
