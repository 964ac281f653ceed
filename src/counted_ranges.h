// Ranges of addresses that are counted page by page: how many times each was added and not taken away again.
#pragma once
#include <algorithm>

#include "segment_tree.h"

namespace hp {

// [start, end), addresses of whole pages.
struct Extent {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t size() const noexcept { return end - start; }
  bool operator==(const Extent &) const = default;
};

// One thread at a time may change it; find() and border_after() are for any, as in the tree.
class CountedRanges {
public:
  // May throw bad_alloc, and then has changed no count.
  void add(const Extent &range);

  // `gone` is called for each stretch that nobody has added any more.
  template <class Gone>
  void remove(const Extent &range, Gone gone) noexcept;

  bool find(uint64_t address, Extent &out, uint64_t &count) const noexcept;
  uint64_t border_after(uint64_t address) const noexcept { return tree_.border_after(address); }

private:
  void split(uint64_t at);

  SegmentTree tree_;  // the count is in meta
};

template <class Gone>
void CountedRanges::remove(const Extent &range, Gone gone) noexcept {
  Segment s;
  for (uint64_t at = range.start; at < range.end && tree_.find(at, s, true) && s.start < range.end; at = s.end) {
    if (s.start < range.start) continue;  // not added as a whole: add() would have split it
    if (s.meta > 1) {
      tree_.set_meta(s.start, s.meta - 1);
      continue;
    }
    tree_.erase(s.start);
    gone(Extent{s.start, s.end});
  }
}

}  // namespace hp
