#include "prefault.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "cpus.h"
#include "mappings.h"
#include "system.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace hp {

namespace {

// What one call makes present. The kernel holds a lock of the address space meanwhile, so that longer calls would stall
// every thread that maps memory, and other threads' advice below. Some milliseconds, with any page size.
constexpr uint64_t kSlice = uint64_t{16} << 20;
constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr unsigned kMaxThreads = 4;
// Advice for huge pages is given for so much at a time. It waits for the calls under way, so for more than a slice; but
// what has it cannot do without huge pages any more, so for little as long as they are on trial.
constexpr uint64_t kFirstAdvice = uint64_t{64} << 20;
constexpr uint64_t kMostAdvice = uint64_t{256} << 20;
// A slice of huge pages takes some 3 ms. Where memory is fragmented the kernel compacts it first, and takes seconds.
constexpr std::chrono::milliseconds kTooSlow{100};

using Clock = std::chrono::steady_clock;

class Work {
public:
  Work(const Extent &pages, const Mapping &mapping, const Prefault &how) noexcept
      : pages_(pages), writable_(mapping.writable), anonymous_(mapping.anonymous), stop_(how.stop),
        next_(pages.start / kSlice * kSlice), huge_(how.huge_pages) {
    // Where all pages are there threads would cost more than they gain.
    while (next_ < pages_.end && all_present(slice_at(next_))) next_ += kSlice;
    advised_ = next_;
  }

  uint64_t slices() const noexcept { return next_ < pages_.end ? (pages_.end - next_ + kSlice - 1) / kSlice : 0; }

  void run() noexcept {
    for (Extent slice; take(slice);) {
      const auto begin = Clock::now();
      const bool done = all_present(slice) || populate(slice);
      const bool slow = Clock::now() - begin > kTooSlow;
      const std::lock_guard lock(mutex_);
      failed_ = failed_ || !done;
      huge_ = huge_ && !slow;
    }
  }

private:
  // Slices lie on multiples of their size, so that no huge page lies in two of them.
  Extent slice_at(uint64_t at) const noexcept {
    return {std::max(at, pages_.start), std::min(at + kSlice, pages_.end)};
  }

  bool take(Extent &slice) noexcept {
    const std::lock_guard lock(mutex_);
    if (failed_ || next_ >= pages_.end || (stop_ && *stop_)) return false;
    if (huge_ && next_ >= advised_) {
      ask_for_huge_pages({std::max(next_, pages_.start), std::min(next_ + advice_, pages_.end)});
      advised_ = next_ + advice_;
      advice_ = std::min(2 * advice_, kMostAdvice);
    }
    slice = slice_at(next_);
    next_ += kSlice;
    return true;
  }

  static void ask_for_huge_pages(const Extent &part) noexcept {
    const uint64_t start = (part.start + kHugePage - 1) / kHugePage * kHugePage;
    const uint64_t end = part.end / kHugePage * kHugePage;
    if (start < end) madvise(reinterpret_cast<void *>(start), end - start, MADV_HUGEPAGE);
  }

  // To ask costs a fiftieth of making pages present that are so already. Of absent pages of a file it costs more than
  // of present ones, so the first one decides.
  bool all_present(const Extent &slice) const noexcept {
    unsigned char present[4096];
    uint64_t pages = anonymous_ ? sizeof(present) : 1;
    for (uint64_t at = slice.start; at < slice.end; at += pages * page_size(), pages = sizeof(present)) {
      pages = std::min<uint64_t>(pages, (slice.end - at) / page_size());
      if (mincore(reinterpret_cast<void *>(at), pages * page_size(), present) != 0) return false;
      if (std::memchr(present, 0, pages)) return false;  // other bits than the lowest are not used yet
    }
    return true;
  }

  bool populate(const Extent &slice) const noexcept {
    void *const start = reinterpret_cast<void *>(slice.start);
    const int advice = writable_ ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    int error;
    do error = madvise(start, slice.size(), advice) == 0 ? 0 : errno;
    while (error == EINTR || error == EAGAIN);
    // A file can shrink under a touch, which would be a signal: only memory that nothing can take away is touched.
    if (error == EINVAL && anonymous_) touch(slice), error = 0;
    return error == 0;
  }

  // Where the kernel has no such call (before 5.14): writes that change nothing, also when others write meanwhile.
  void touch(const Extent &slice) const noexcept {
    for (uint64_t at = slice.start; at < slice.end; at += page_size()) {
      auto *byte = reinterpret_cast<unsigned char *>(at);
      unsigned char value = __atomic_load_n(byte, __ATOMIC_RELAXED);
      // Not an atomic "or" with 0, of which clang makes a read.
      if (writable_) __atomic_compare_exchange_n(byte, &value, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
  }

  const Extent pages_;
  const bool writable_;
  const bool anonymous_;
  const std::atomic<bool> *const stop_;

  std::mutex mutex_;  // for all below
  uint64_t next_;
  uint64_t advised_ = 0;
  uint64_t advice_ = kFirstAdvice;
  bool huge_;
  bool failed_ = false;
};

// Threads that take none of the application's signals, and leave the placement of pages as it is.
class WithThreads {
public:
  WithThreads(Work &work, unsigned n, const Cpus *cpus) noexcept {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      while (n-- > 0)
        threads_.emplace_back([&work, cpus] {
          if (cpus) stay_on(*cpus);
          work.run();
        });
    } catch (...) {  // fewer do it as well
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

private:
  std::vector<std::jthread> threads_;
};

}  // namespace

void prefault(const Extent &pages, const Prefault &how) noexcept {
  const Mapping mapping = mapping_of(pages.start, pages.end);
  if (!mapping.mapped || !mapping.readable || mapping.device) return;
  Work work(pages, mapping, how);
  if (work.slices() == 0) return;
  Cpus cpus;
  const bool known = cpus_for_memory(pages.start, cpus);
  const unsigned cores = known ? count(cpus) : std::max(1u, std::thread::hardware_concurrency());
  const unsigned wanted = how.threads ? how.threads : std::min(cores, kMaxThreads);
  const WithThreads others(work, static_cast<unsigned>(std::min<uint64_t>(wanted, work.slices())) - 1,
                           known ? &cpus : nullptr);
  work.run();
}

}  // namespace hp
