// Makes pages present before the driver pins them: several threads do in less time what the driver does alone and under
// its locks.
#pragma once
#include <atomic>

#include "registry.h"

namespace hp {

struct Prefault {
  unsigned threads = 0;                      // 0: by cores
  bool huge_pages = false;                   // ask for huge pages first
  const std::atomic<bool> *stop = nullptr;   // give up when it becomes true
  // Set where huge pages take too long; then they are not asked for. For calls that share it, as those of one
  // registration should.
  std::atomic<bool> *huge_pages_slow = nullptr;
};

// Never changes a byte, and never fails: pages that cannot be made present are left to the driver.
void prefault(const Extent &pages, const Prefault &how) noexcept;

}  // namespace hp
