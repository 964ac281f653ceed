#include "counted_ranges.h"

namespace hp {

void CountedRanges::split(uint64_t at) {
  Segment s;
  if (!tree_.find(at, s) || s.start == at) return;
  tree_.insert({at, s.end, s.meta, 0});
  tree_.set_end(s.start, at);
}

void CountedRanges::add(const Extent &range) {
  split(range.start);
  split(range.end);
  uint64_t at = range.start;
  try {
    while (at < range.end) {
      Segment s;
      const bool any = tree_.find(at, s, true) && s.start < range.end;
      if (any && s.start == at) {
        tree_.set_meta(s.start, s.meta + 1);
        at = s.end;
        continue;
      }
      const uint64_t end = any ? s.start : range.end;
      tree_.insert({at, end, 1, 0});
      at = end;
    }
  } catch (...) {
    remove({range.start, at}, [](const Extent &) {});
    throw;
  }
}

bool CountedRanges::find(uint64_t address, Extent &out, uint64_t &count) const noexcept {
  Segment s;
  if (!tree_.find(address, s)) return false;
  out = {s.start, s.end};
  count = s.meta;
  return true;
}

}  // namespace hp
