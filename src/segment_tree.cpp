#include "segment_tree.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace hp {

namespace {
constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;
constexpr auto kRelaxed = std::memory_order_relaxed;
}  // namespace

SegmentTree::~SegmentTree() {
  if (nodes_) munmap(nodes_, mapped_);
}

// How many of the keys in one line are <= addr. All are compared: that is faster than a branch that is mispredicted.
inline unsigned SegmentTree::rank(const Word *key, uint64_t addr) noexcept {
  unsigned r = 0;
#pragma GCC unroll 8
  for (unsigned i = 0; i < kLine - 1; ++i) r += key[i].load(kAcquire) <= addr;
  return r;
}

inline unsigned SegmentTree::rank(const Inner &n, uint64_t addr) noexcept {
  const unsigned r = rank(n.guide, addr) * kLine;
  return r + rank(n.key + r, addr);
}

inline Segment SegmentTree::entry(const Leaf &n, unsigned i) noexcept {
  return {n.key[i].load(kAcquire), n.value[i].end.load(kAcquire), n.value[i].meta.load(kAcquire),
          n.value[i].device.load(kAcquire)};
}

// The values lie in lines that are seldom in the cache: this asks for them before it is known which one it will be.
inline void SegmentTree::prefetch_values(const Leaf &n) noexcept {
  for (unsigned i = 0; i < Leaf::kFanout; i += 3) __builtin_prefetch(&n.value[i]);
}

inline void SegmentTree::set_entry(Leaf &n, unsigned i, const Segment &s) noexcept {
  n.key[i].store(s.start, kRelease);
  n.value[i].end.store(s.end, kRelease);
  n.value[i].meta.store(s.meta, kRelease);
  n.value[i].device.store(s.device, kRelease);
}

// Every load acquires, and a node's new contents are released after its new reference, so that whoever has read of a
// later life also sees that the node goes by another reference.
bool SegmentTree::find_holding(uint64_t addr, Segment &out) const noexcept {
  if (addr == UINT64_MAX) return false;  // what unused keys hold
  for (;;) {
    Reference reference = root_.load(kAcquire);
    if (!reference) return false;
    bool valid = true;
    while (!is_leaf(reference) && valid) {
      const Inner &n = node<Inner>(reference);
      const Reference child = n.child[rank(n, addr)].load(kAcquire);
      valid = n.self.load(kAcquire) == reference;
      reference = child;
    }
    if (!valid) continue;
    const Leaf &n = node<Leaf>(reference);
    prefetch_values(n);
    const unsigned r = rank(n, addr);
    out = entry(n, r - (r != 0));
    if (n.self.load(kAcquire) == reference) return addr - out.start < out.end - out.start;
  }
}

// One attempt of find_or_next(); false when a node was replaced meanwhile.
bool SegmentTree::look(uint64_t addr, Segment &out, bool &found) const noexcept {
  found = false;
  Reference next = 0;  // the subtree right of the path, nearest first
  for (Reference reference = root_.load(kAcquire); reference;) {
    if (is_leaf(reference)) {
      const Leaf &n = node<Leaf>(reference);
      prefetch_values(n);
      const unsigned r = rank(n, addr);
      const unsigned before = r - (r != 0);
      const bool over = n.value[before].end.load(kAcquire) <= addr;
      out = entry(n, over ? std::min(r, Leaf::kFanout - 1) : before);
      if (n.self.load(kAcquire) != reference) return false;
      found = out.end > addr && out.start != UINT64_MAX;
      if (found) return true;
      reference = next;  // all its keys are above addr
      next = 0;
      continue;
    }
    const Inner &n = node<Inner>(reference);
    const unsigned slot = rank(n, addr);
    const Reference child = n.child[slot].load(kAcquire);
    const Reference right = slot + 1 < Inner::kFanout ? n.child[slot + 1].load(kAcquire) : 0;
    if (n.self.load(kAcquire) != reference) return false;
    if (right) next = right;
    reference = child;
  }
  return true;
}

bool SegmentTree::find_or_next(uint64_t addr, Segment &out) const noexcept {
  if (addr == UINT64_MAX) return false;
  bool found;
  while (!look(addr, out, found)) {
  }
  return found;
}

bool SegmentTree::last_before(uint64_t addr, Segment &out) const noexcept {
  Path path;
  if (addr == 0) return false;
  descend(addr - 1, path);
  if (!path.leaf) return false;
  if (path.rank == 0) {  // a bound outlives the entry it came from: the range is in the leaf to the left
    unsigned depth = path.depth;
    while (depth && path.step[depth - 1].slot == 0) --depth;
    if (depth == 0) return false;
    const Step &step = path.step[depth - 1];
    path.leaf = node<Inner>(step.node).child[step.slot - 1].load(kRelaxed);
    while (!is_leaf(path.leaf)) {
      const Inner &n = node<Inner>(path.leaf);
      path.leaf = n.child[count(n) - 1].load(kRelaxed);
    }
    path.rank = count(node<Leaf>(path.leaf));
  }
  out = entry(node<Leaf>(path.leaf), path.rank - 1);
  return true;
}

// Makes sure that one insert finds the nodes it needs, and any erases after it: an erase gives back at least as many of
// each kind as it takes, so what suffices for one does for all.
void SegmentTree::reserve() {
  const size_t height = height_ + 1;
  if (height > kMaxDepth) throw std::bad_alloc();
  const size_t leaves = 2 + 1;
  const size_t inners = 2 * height + height;
  const size_t missing = (leaves - std::min(leaves, free_leaves_.count)) * sizeof(Leaf) +
                         (inners - std::min(inners, free_inners_.count)) * sizeof(Inner);
  while (usable_ - used_ < missing) map_more();
}

// Takes address space for all the nodes there may ever be, or for as many as the process may have, and makes it usable
// bit by bit.
void SegmentTree::map_more() {
  constexpr size_t kStep = size_t{256} << 10;
  for (size_t bytes = kMaxBytes; !nodes_ && bytes >= kStep; bytes /= 2) {
    void *p = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) continue;
    nodes_ = static_cast<uint64_t *>(p);
    mapped_ = bytes;
  }
  if (usable_ == mapped_) throw std::bad_alloc();
  if (mprotect(nodes_ + usable_ / sizeof(Word), kStep, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  usable_ += kStep;
}

template <class Node>
inline SegmentTree::FreeList &SegmentTree::free_list() noexcept {
  return Node::kFlag ? free_leaves_ : free_inners_;
}

template <class Node>
inline Node &SegmentTree::take(Reference &reference) noexcept {
  FreeList &list = free_list<Node>();
  reference = list.first;
  if (reference) {
    Node &n = node<Node>(reference);
    list.first = n.key[0].load(kRelaxed);
    --list.count;
    return n;
  }
  reference = Reference{used_ / sizeof(Word)} << kPlaceShift | Node::kFlag;
  used_ += sizeof(Node);
  Node &n = *new (&node<Node>(reference)) Node;
  n.self.store(reference, kRelease);
  return n;
}

// The node goes by another reference before anything in it changes.
template <class Node>
inline void SegmentTree::give(Node &n) noexcept {
  FreeList &list = free_list<Node>();
  const Reference old = n.self.load(kRelaxed);
  const Reference reference = (old & kPlaceMask) | ((old + kGeneration) & ~kPlaceMask);
  n.self.store(reference, kRelease);
  n.key[0].store(list.first, kRelease);
  list.first = reference;
  ++list.count;
}

void SegmentTree::give_all(const Retired &retired) noexcept {
  for (unsigned i = 0; i < retired.count; ++i) {
    if (is_leaf(retired.node[i]))
      give(node<Leaf>(retired.node[i]));
    else
      give(node<Inner>(retired.node[i]));
  }
}

SegmentTree::Reference SegmentTree::make(const Segment *entries, unsigned count) noexcept {
  Reference reference;
  Leaf &n = take<Leaf>(reference);
  for (unsigned i = 0; i < count; ++i) set_entry(n, i, entries[i]);
  for (unsigned i = count; i < Leaf::kFanout; ++i) n.key[i].store(UINT64_MAX, kRelease);
  return reference;
}

SegmentTree::Reference SegmentTree::make(const Draft &draft, unsigned from, unsigned to) noexcept {
  Reference reference;
  Inner &n = take<Inner>(reference);
  const unsigned count = to - from;
  for (unsigned i = 0; i < Inner::kFanout; ++i) {
    n.key[i].store(i + 1 < count ? draft.key[from + i + 1] : UINT64_MAX, kRelease);
    n.child[i].store(i < count ? draft.child[from + i] : 0, kRelease);
  }
  for (unsigned i = 0; i + 1 < kLine; ++i) n.guide[i].store(n.key[i * kLine + kLine - 1].load(kRelaxed), kRelease);
  return reference;
}

void SegmentTree::load(Reference reference, Draft &draft) const noexcept {
  const Inner &n = node<Inner>(reference);
  draft.count = count(n);
  for (unsigned i = 0; i < draft.count; ++i) {
    draft.key[i + 1] = n.key[i].load(kRelaxed);
    draft.child[i] = n.child[i].load(kRelaxed);
  }
}

inline void SegmentTree::Draft::insert(unsigned slot, uint64_t k, Reference c) noexcept {
  std::copy_backward(key.begin() + slot, key.begin() + count, key.begin() + count + 1);
  std::copy_backward(child.begin() + slot, child.begin() + count, child.begin() + count + 1);
  key[slot] = k;
  child[slot] = c;
  ++count;
}

inline void SegmentTree::Draft::erase(unsigned slot) noexcept {
  std::copy(key.begin() + slot + 1, key.begin() + count, key.begin() + slot);
  std::copy(child.begin() + slot + 1, child.begin() + count, child.begin() + slot);
  --count;
}

// The way to the leaf where start belongs; true when the leaf has an entry with exactly this start.
inline bool SegmentTree::descend(uint64_t start, Path &path) const noexcept {
  Reference reference = root_.load(kRelaxed);
  if (!reference) return false;
  while (!is_leaf(reference)) {
    const Inner &n = node<Inner>(reference);
    const unsigned slot = rank(n, start);
    path.step[path.depth++] = {reference, slot};
    reference = n.child[slot].load(kRelaxed);
  }
  path.leaf = reference;
  const Leaf &n = node<Leaf>(reference);
  prefetch_values(n);
  path.rank = rank(n, start);
  return path.rank && n.key[path.rank - 1].load(kRelaxed) == start;
}

// Makes a change visible: one store puts `reference` in the place of the node at `depth` of the path.
inline void SegmentTree::publish(const Path &path, unsigned depth, Reference reference) noexcept {
  if (depth == 0)
    root_.store(reference, kRelease);
  else
    node<Inner>(path.step[depth - 1].node).child[path.step[depth - 1].slot].store(reference, kRelease);
}

// A bound outlives the entry it came from, and the new entry may lie across it: then its tail would be looked for on
// the wrong side. Nothing lies between the bound and the entry's end, so readers are right with either bound meanwhile.
// Only the nearest bound can be meant: there is an entry between it and the next one.
void SegmentTree::raise_bound(const Path &path, uint64_t end) noexcept {
  for (unsigned depth = path.depth; depth-- > 0;) {
    Inner &n = node<Inner>(path.step[depth].node);
    const unsigned slot = path.step[depth].slot;
    const uint64_t bound = n.key[slot].load(kRelaxed);
    if (bound == UINT64_MAX) continue;
    if (bound >= end) return;
    n.key[slot].store(end, kRelease);
    if (slot % kLine == kLine - 1) n.guide[slot / kLine].store(end, kRelease);
    return;
  }
}

void SegmentTree::insert(const Segment &segment) {
  Path path;
  descend(segment.start, path);
  reserve();
  raise_bound(path, segment.end);
  ++size_;
  if (!path.leaf) return publish(path, 0, make(&segment, 1));
  Leaf &old = node<Leaf>(path.leaf);
  if (old.key[Leaf::kFanout - 1].load(kRelaxed) != UINT64_MAX) {
    split_leaf(path, segment);
  } else {
    // Unused entries too: they are less work than a loop whose end is mispredicted.
    Reference reference;
    Leaf &n = take<Leaf>(reference);
#pragma GCC unroll 8
    for (unsigned i = 0; i + 1 < Leaf::kFanout; ++i) set_entry(n, i + (i >= path.rank), entry(old, i));
    set_entry(n, path.rank, segment);
    publish(path, path.depth, reference);
    give(old);
  }
  last_ = segment.start;
}

void SegmentTree::split_leaf(const Path &path, const Segment &segment) noexcept {
  const Leaf &old = node<Leaf>(path.leaf);
  std::array<Segment, Leaf::kFanout + 1> all;
  for (unsigned i = 0; i < Leaf::kFanout; ++i) all[i + (i >= path.rank)] = entry(old, i);
  all[path.rank] = segment;
  // Ascending and descending runs leave full leaves behind; all else splits in the middle.
  unsigned cut = kLine / 2;
  if (path.rank == Leaf::kFanout && all[Leaf::kFanout - 1].start == last_) cut = Leaf::kFanout;
  if (path.rank == 0 && all[1].start == last_) cut = 1;
  const Reference left = make(all.data(), cut);
  const Reference right = make(all.data() + cut, kLine - cut);
  Retired retired;
  retired.add(path.leaf);
  replace_by_two(path, left, all[cut].start, right, retired);
}

// Puts two nodes in the place of the leaf, and splits the inner nodes that overflow.
void SegmentTree::replace_by_two(const Path &path, Reference left, uint64_t key, Reference right,
                                 Retired &retired) noexcept {
  Draft draft;
  for (unsigned depth = path.depth; depth-- > 0;) {
    const Step &step = path.step[depth];
    load(step.node, draft);
    retired.add(step.node);
    const unsigned slot = step.slot + 1;
    const bool last = slot == draft.count;
    draft.child[step.slot] = left;
    draft.insert(slot, key, right);
    if (draft.count <= Inner::kFanout) {
      publish(path, depth, make(draft, 0, draft.count));
      return give_all(retired);
    }
    const unsigned cut = last ? Inner::kFanout : slot == 1 ? 1 : Inner::kFanout / 2;
    left = make(draft, 0, cut);
    key = draft.key[cut];
    right = make(draft, cut, draft.count);
  }
  draft.count = 2;
  draft.child[0] = left;
  draft.key[1] = key;
  draft.child[1] = right;
  ++height_;
  publish(path, 0, make(draft, 0, 2));
  give_all(retired);
}

// A node at `depth` is to have `entries` left: on which side of it, -1 or 1, is one under the same parent that it had
// better be joined with? 0 if on none.
template <class Node>
inline int SegmentTree::neighbour(const Path &path, unsigned depth, unsigned entries) const noexcept {
  if (depth == 0 || entries > Node::kFanout / 3) return 0;
  const Step &step = path.step[depth - 1];
  const Inner &parent = node<Inner>(step.node);
  for (int side : {-1, 1}) {
    const unsigned slot = step.slot + static_cast<unsigned>(side);
    const Reference r = slot < Inner::kFanout ? parent.child[slot].load(kRelaxed) : 0;
    if (r && entries + count(node<Node>(r)) <= Node::kFanout * 3 / 4) return side;
  }
  return 0;
}

void SegmentTree::erase(uint64_t start) noexcept {
  Path path;
  if (!descend(start, path)) return;
  --size_;
  Leaf &old = node<Leaf>(path.leaf);
  const unsigned left = count(old) - 1;
  const int side = neighbour<Leaf>(path, path.depth, left);
  if (left == 0 || side) return merge_leaf(path, side);
  Reference reference;
  Leaf &n = take<Leaf>(reference);
#pragma GCC unroll 8
  for (unsigned i = 0; i + 1 < Leaf::kFanout; ++i) set_entry(n, i, entry(old, i + (i + 1 >= path.rank)));
  n.key[Leaf::kFanout - 1].store(UINT64_MAX, kRelease);
  publish(path, path.depth, reference);
  give(old);
}

// Erases an entry of a leaf that becomes one with its neighbour, or that has no other entry.
void SegmentTree::merge_leaf(const Path &path, int side) noexcept {
  Retired retired;
  retired.add(path.leaf);
  if (path.depth == 0) {
    publish(path, 0, 0);
    return give_all(retired);
  }
  const Step &step = path.step[path.depth - 1];
  Draft parent;
  load(step.node, parent);
  retired.add(step.node);
  const unsigned first = step.slot - (side < 0);
  if (side) {
    std::array<Segment, 2 * Leaf::kFanout> all;
    unsigned n = 0;
    for (unsigned slot : {first, first + 1}) {
      const Leaf &from = node<Leaf>(parent.child[slot]);
      for (unsigned i = 0; i < count(from); ++i)
        if (slot != step.slot || i + 1 != path.rank) all[n++] = entry(from, i);
    }
    retired.add(parent.child[step.slot + static_cast<unsigned>(side)]);
    parent.child[first] = make(all.data(), n);
    parent.erase(first + 1);
  } else {
    parent.erase(step.slot);
  }
  shrink(path, parent, retired);
}

// Puts `draft` in the place of the last inner node of the path, and joins what has become small with its neighbour.
void SegmentTree::shrink(const Path &path, Draft &draft, Retired &retired) noexcept {
  unsigned depth = path.depth - 1;
  for (; depth > 0; --depth) {
    const int side = neighbour<Inner>(path, depth, draft.count);
    if (draft.count && !side) break;
    const Step &step = path.step[depth - 1];
    Draft parent;
    load(step.node, parent);
    retired.add(step.node);
    if (side) {
      const unsigned first = step.slot - (side < 0);
      const Reference other = parent.child[step.slot + static_cast<unsigned>(side)];
      retired.add(other);
      Draft sibling;
      load(other, sibling);
      Draft &low = side < 0 ? sibling : draft;
      Draft &high = side < 0 ? draft : sibling;
      high.key[0] = parent.key[first + 1];
      for (unsigned i = 0; i < high.count; ++i) low.insert(low.count, high.key[i], high.child[i]);
      parent.child[first] = make(low, 0, low.count);
      parent.erase(first + 1);
    } else {
      parent.erase(step.slot);
    }
    draft = parent;
  }
  if (draft.count > 1 || depth > 0) {
    publish(path, depth, make(draft, 0, draft.count));
  } else {  // a root with one child is not needed, and one without children even less
    height_ = draft.count ? height_ - 1 : 0;
    publish(path, 0, draft.count ? draft.child[0] : 0);
  }
  give_all(retired);
}

void SegmentTree::set_meta(uint64_t start, uint64_t meta) noexcept {
  Path path;
  if (descend(start, path)) node<Leaf>(path.leaf).value[path.rank - 1].meta.store(meta, kRelease);
}

void SegmentTree::set_end(uint64_t start, uint64_t end) noexcept {
  Path path;
  if (descend(start, path)) node<Leaf>(path.leaf).value[path.rank - 1].end.store(end, kRelease);
}

void SegmentTree::set_device(uint64_t start, uint64_t device) noexcept {
  Path path;
  if (descend(start, path)) node<Leaf>(path.leaf).value[path.rank - 1].device.store(device, kRelease);
}

}  // namespace hp
