#include "prefault.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "mappings.h"
#include "system.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace hp {

namespace {

// Longer calls would stall every other thread that maps memory: the kernel holds the address space's lock meanwhile.
constexpr uint64_t kSlice = uint64_t{64} << 20;
constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr unsigned kMaxThreads = 4;
// With huge pages a slice takes some 10 ms. Where memory is fragmented the kernel compacts it first, and takes seconds.
constexpr std::chrono::milliseconds kTooSlow{400};

struct Work {
  Extent pages;
  bool writable;
  bool anonymous;
  const std::atomic<bool> *stop;
  std::atomic<uint64_t> next;
  std::atomic<bool> huge;
  std::atomic<bool> failed{false};
};

// Where the kernel has no such call (before 5.14): writes that change nothing, also when others write meanwhile.
void touch(const Extent &slice, bool writable) noexcept {
  for (uint64_t at = slice.start; at < slice.end; at += page_size()) {
    auto *byte = reinterpret_cast<unsigned char *>(at);
    if (writable)
      __atomic_fetch_or(byte, 0, __ATOMIC_RELAXED);
    else
      static_cast<void>(__atomic_load_n(byte, __ATOMIC_RELAXED));
  }
}

bool populate(const Work &work, const Extent &slice) noexcept {
  void *const start = reinterpret_cast<void *>(slice.start);
  const int advice = work.writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  int error;
  do error = madvise(start, slice.size(), advice) == 0 ? 0 : errno;
  while (error == EINTR || error == EAGAIN);
  // A file can shrink under a touch, which would be a signal: only memory that nothing can take away is touched.
  if (error == EINVAL && work.anonymous) touch(slice, work.writable), error = 0;
  return error == 0;
}

void ask_for_huge_pages(const Extent &slice) noexcept {
  const uint64_t start = (slice.start + kHugePage - 1) / kHugePage * kHugePage;
  const uint64_t end = slice.end / kHugePage * kHugePage;
  if (start < end) madvise(reinterpret_cast<void *>(start), end - start, MADV_HUGEPAGE);
}

void run(Work &work) noexcept {
  while (!work.failed && !(work.stop && *work.stop)) {
    const uint64_t start = work.next.fetch_add(kSlice);
    if (start >= work.pages.end) return;
    const Extent slice = {std::max(start, work.pages.start), std::min(start + kSlice, work.pages.end)};
    const bool huge = work.huge;
    if (huge) ask_for_huge_pages(slice);
    const auto begin = std::chrono::steady_clock::now();
    if (!populate(work, slice)) work.failed = true;
    if (huge && std::chrono::steady_clock::now() - begin > kTooSlow) work.huge = false;
  }
}

}  // namespace

void prefault(const Extent &pages, const Prefault &how) noexcept {
  const Mapping mapping = mapping_of(pages.start, pages.end);
  if (!mapping.mapped || !mapping.readable || mapping.device) return;
  // Slices lie on multiples of their size, so that no huge page lies in two of them.
  Work work{pages, mapping.writable, mapping.anonymous, how.stop, {pages.start / kSlice * kSlice}, {how.huge_pages}};
  const uint64_t slices = (pages.end - work.next + kSlice - 1) / kSlice;
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const auto threads = static_cast<unsigned>(
      std::min<uint64_t>(how.threads ? how.threads : std::min(cores, kMaxThreads), slices));
  try {
    std::vector<std::jthread> helpers;
    for (unsigned i = 1; i < threads; ++i) helpers.emplace_back([&work] { run(work); });
    run(work);
  } catch (...) {
    run(work);  // fewer threads do it as well
  }
}

}  // namespace hp
