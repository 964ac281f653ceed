#include "fork_exclusion.h"

#include <sys/mman.h>

namespace hp {

namespace {

// A mapping that cannot be left out (device memory) is in the children anyway.
void tell(const Extent &pages, int advice) noexcept {
  madvise(reinterpret_cast<void *>(pages.start), pages.size(), advice);
}

}  // namespace

void ForkExclusion::add(std::span<const Extent> pages) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < pages.size(); ++i) {
    try {
      ranges_.add(pages[i]);
    } catch (...) {
      for (const Extent &done : pages.first(i)) ranges_.remove(done, [](const Extent &e) { tell(e, MADV_DOFORK); });
      throw;
    }
    tell(pages[i], MADV_DONTFORK);
  }
}

void ForkExclusion::remove(std::span<const Extent> pages) noexcept {
  const std::lock_guard lock(mutex_);
  for (const Extent &e : pages) ranges_.remove(e, [](const Extent &gone) { tell(gone, MADV_DOFORK); });
}

}  // namespace hp
