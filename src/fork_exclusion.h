// Pages that are kept out of forked children while they are registered: fork would copy pinned private memory at once.
#pragma once
#include <mutex>
#include <span>

#include "counted_ranges.h"

namespace hp {

class ForkExclusion {
public:
  void add(std::span<const Extent> pages);  // throws bad_alloc
  void remove(std::span<const Extent> pages) noexcept;

private:
  // Held while the kernel is told, so that it hears of changes in their order. Nothing else waits for it.
  std::mutex mutex_;
  CountedRanges ranges_;
};

}  // namespace hp
