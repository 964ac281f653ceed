#include "prefault.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

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

// What is done about pages that are mapped alike.
enum class Access { none, read, write };
struct Treatment {
  Access access = Access::none;
  bool anonymous = false;
  bool own = false;  // a page that others see too is copied when it is written, so that it has to be one of its own
};

Treatment treatment_of(const Extent &part, const Mapping &mapping) noexcept {
  if (!mapping.mapped || !mapping.readable || mapping.device) return {};
  if (!mapping.writable) return {Access::read, mapping.anonymous, false};
  SharedObject object;
  const bool shared = !mapping.anonymous && shared_objects(part.start, part.end, {&object, 1}) > 0;
  // No driver can pin these, and to write them would give the file's holes room on the disk.
  if (mapping.file && shared) return {};
  return {Access::write, mapping.anonymous, !shared};
}

// From the first to the last page that cannot be written.
Extent read_only_part(const Extent &slice) noexcept {
  const uint64_t page = page_size();
  const auto writable = [](uint64_t start, uint64_t end) { return mapping_of(start, end).writable; };
  const auto middle = [page](uint64_t start, uint64_t end) { return start + (end - start) / page / 2 * page; };
  Extent part = slice;
  if (writable(slice.start, slice.start + page))
    for (uint64_t end = slice.end; end - part.start > page;) {
      const uint64_t at = middle(part.start, end);
      (writable(part.start, at) ? part.start : end) = at;
    }
  if (writable(slice.end - page, slice.end))
    for (uint64_t start = part.start; part.end - start > page;) {
      const uint64_t at = middle(start, part.end);
      (writable(at, part.end) ? part.end : start) = at;
    }
  return part;
}

// What is known of pages: there is nothing to do; some are absent; or they are others' too, and are to be replaced.
enum class State { ready, absent, shared };

// The kernel's table of this process's pages, opened when it is first asked for.
class PageMap {
public:
  PageMap() = default;
  ~PageMap() {
    if (file_ >= 0) close(file_);
  }
  PageMap(const PageMap &) = delete;
  PageMap &operator=(const PageMap &) = delete;

  // Of a page that is to be anonymous memory which no other process and no other mapping has.
  State state_of(uint64_t address) noexcept {
    constexpr uint64_t kPresent = uint64_t{1} << 63;
    constexpr uint64_t kFile = uint64_t{1} << 61;
    constexpr uint64_t kMappedOnce = uint64_t{1} << 56;
    uint64_t entry = 0;
    const auto at = static_cast<off_t>(address / page_size() * sizeof(entry));
    if (pread(file(), &entry, sizeof(entry), at) != sizeof(entry)) return State::ready;  // not told
    if (!(entry & kPresent)) return State::absent;
    return (entry & (kFile | kMappedOnce)) == kMappedOnce ? State::ready : State::shared;
  }

private:
  int file() noexcept {
    const std::lock_guard lock(mutex_);
    if (!opened_) file_ = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    opened_ = true;
    return file_;
  }

  std::mutex mutex_;
  bool opened_ = false;
  int file_ = -1;
};

class Work {
public:
  Work(const Extent &pages, const Mapping &mapping, const Prefault &how) noexcept
      : pages_(pages), alike_(mapping.writable && !mapping.file),
        all_(alike_ ? treatment_of(pages, mapping) : Treatment{}), stop_(how.stop),
        huge_pages_slow_(how.huge_pages_slow), next_(pages.start / kSlice * kSlice),
        huge_(how.huge_pages && !(huge_pages_slow_ && *huge_pages_slow_)) {
    // Where all pages are there threads would cost more than they gain.
    while (next_ < pages_.end && (first_ = state_of(slice_at(next_))) == State::ready) next_ += kSlice;
    advised_ = next_;
  }

  // How many threads can do something at a time.
  uint64_t most_threads() const noexcept {
    // Each page that is replaced has to be forgotten by all processors that the process runs on, which takes longer
    // than the copy: several threads are slower than one.
    if (first_ == State::shared) return 1;
    return next_ < pages_.end ? (pages_.end - next_ + kSlice - 1) / kSlice : 0;
  }

  void run() noexcept {
    for (Extent slice; take(slice);) {
      const auto begin = Clock::now();
      const bool done = make_ready(slice);
      const bool slow = Clock::now() - begin > kTooSlow;
      const std::lock_guard lock(mutex_);
      failed_ = failed_ || !done;
      if (huge_ && slow && huge_pages_slow_) *huge_pages_slow_ = true;
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

  // Hands over the parts of a slice that are treated alike, until `visit` returns false.
  template <class Visit>
  bool each_part(const Extent &slice, Visit visit) const noexcept {
    if (alike_) return visit(slice, all_);
    const Mapping mapping = mapping_of(slice.start, slice.end);
    if (mapping.writable || !mapping.mapped) return visit(slice, treatment_of(slice, mapping));
    // A page that is read and not written is made a zero page, which is worse than none for those that can be written.
    const Extent middle = read_only_part(slice);
    for (const Extent &part : {Extent{slice.start, middle.start}, middle, Extent{middle.end, slice.end}})
      if (part.size() && !visit(part, treatment_of(part, mapping_of(part.start, part.end)))) return false;
    return true;
  }

  State state_of(const Extent &slice) noexcept {
    State state = State::ready;
    each_part(slice, [&](const Extent &part, const Treatment &how) {
      state = state_of(part, how);
      return state == State::ready;
    });
    return state;
  }
  bool make_ready(const Extent &slice) noexcept {
    return each_part(slice, [this](const Extent &part, const Treatment &how) {
      return state_of(part, how) == State::ready || populate(part, how);
    });
  }

  State state_of(const Extent &part, const Treatment &how) noexcept {
    if (how.access == Access::none) return State::ready;
    // Of another user's file the kernel says that all of it is present.
    if (how.access == Access::read && !how.anonymous) return State::absent;
    if (!all_present(part, how.anonymous)) return State::absent;
    // Zero pages, and those of a file or of a forked child, are present as well. They come in long stretches, and to
    // look at each would cost more than all the rest: one stands for its part.
    return how.own ? page_map_.state_of(part.start + part.size() / 2) : State::ready;
  }

  // To ask costs a fiftieth of making pages present that are so already. Of absent pages of a file it costs more than
  // of present ones, so the first one decides.
  static bool all_present(const Extent &part, bool anonymous) noexcept {
    unsigned char present[4096];
    uint64_t pages = anonymous ? sizeof(present) : 1;
    for (uint64_t at = part.start; at < part.end; at += pages * page_size(), pages = sizeof(present)) {
      pages = std::min<uint64_t>(pages, (part.end - at) / page_size());
      if (mincore(reinterpret_cast<void *>(at), pages * page_size(), present) != 0) return false;
      if (std::memchr(present, 0, pages)) return false;  // other bits than the lowest are not used yet
    }
    return true;
  }

  static bool populate(const Extent &part, const Treatment &how) noexcept {
    void *const start = reinterpret_cast<void *>(part.start);
    const bool write = how.access == Access::write;
    int error;
    do error = madvise(start, part.size(), write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0 ? 0 : errno;
    while (error == EINTR || error == EAGAIN);
    // A file can shrink under a touch, which would be a signal: only memory that nothing can take away is touched.
    if (error == EINVAL && how.anonymous) touch(part, write), error = 0;
    return error == 0;
  }

  // Where the kernel has no such call (before 5.14): writes that change nothing, also when others write meanwhile.
  static void touch(const Extent &part, bool write) noexcept {
    for (uint64_t at = part.start; at < part.end; at += page_size()) {
      auto *byte = reinterpret_cast<unsigned char *>(at);
      unsigned char value = __atomic_load_n(byte, __ATOMIC_RELAXED);
      // Not an atomic "or" with 0, of which clang makes a read.
      if (write) __atomic_compare_exchange_n(byte, &value, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
  }

  const Extent pages_;
  const bool alike_;     // all pages are treated as one
  const Treatment all_;  // then
  PageMap page_map_;
  State first_ = State::ready;  // of the first slice that is not
  const std::atomic<bool> *const stop_;
  std::atomic<bool> *const huge_pages_slow_;

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
  if (work.most_threads() == 0) return;
  Cpus cpus;
  const bool known = cpus_for_memory(pages.start, cpus);
  const unsigned cores = known ? count(cpus) : std::max(1u, std::thread::hardware_concurrency());
  const unsigned wanted = how.threads ? how.threads : std::min(cores, kMaxThreads);
  const WithThreads others(work, static_cast<unsigned>(std::min<uint64_t>(wanted, work.most_threads())) - 1,
                           known ? &cpus : nullptr);
  work.run();
}

}  // namespace hp
