#include "segment_tree.h"

#include <algorithm>
#include <new>

namespace hp {

namespace {
constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;
constexpr auto kRelaxed = std::memory_order_relaxed;
}  // namespace

SegmentTree::~SegmentTree() {
  for (auto &chunk : chunks_) delete[] chunk.load(kRelaxed);
}

// How many keys are <= addr, which is one more than the slot to follow. Without branches: they would be mispredicted.
unsigned SegmentTree::rank(const Node &n, uint64_t addr) noexcept {
  unsigned base = 0;
  for (unsigned step = kFanout / 2; step; step /= 2)
    base += n.key[base + step - 1].load(kAcquire) <= addr ? step : 0;
  return base + (n.key[base].load(kAcquire) <= addr ? 1 : 0);
}

// One attempt of find(); false when a node was used again meanwhile. Every load acquires, and a node's new contents are
// released after its new generation, so contents of a later life are always followed by the sight of its generation.
bool SegmentTree::look(uint64_t addr, bool or_next, Segment &out, bool &found) const noexcept {
  found = false;
  uint64_t reference = root_.load(kAcquire);
  uint64_t next = 0;  // the subtree right of the path, nearest first
  while (reference) {
    const Node &n = node(reference);
    const auto generation = static_cast<uint32_t>(reference);
    const unsigned r = rank(n, addr);
    const bool leaf = n.level.load(kAcquire) == 0;
    const unsigned count = n.count.load(kAcquire);
    const unsigned slot = r ? r - 1 : 0;
    if (leaf) {
      unsigned i = slot;
      out.end = n.value[i].load(kAcquire);
      if (or_next && (r == 0 || out.end <= addr)) out.end = n.value[i = r < kFanout ? r : slot].load(kAcquire);
      out.start = n.key[i].load(kAcquire);
      out.meta = n.meta[i].load(kAcquire);
      out.device = n.device[i].load(kAcquire);
      if (n.generation.load(kAcquire) != generation) return false;
      found = i < count && out.end > addr && (or_next || out.start <= addr);
      if (found || !or_next || !next) return true;
      reference = next;  // the first entry of the next leaf; its keys are all above addr
      next = 0;
      continue;
    }
    const uint64_t child = n.value[slot].load(kAcquire);
    const uint64_t right = slot + 1 < count ? n.value[slot + 1].load(kAcquire) : 0;
    if (n.generation.load(kAcquire) != generation) return false;
    if (right) next = right;
    reference = child;
  }
  return true;
}

bool SegmentTree::find(uint64_t addr, Segment &out, bool or_next) const noexcept {
  bool found;
  while (!look(addr, or_next, out, found)) {
  }
  return found;
}

// Makes sure that any one insert and after it any one erase find the nodes they need. An erase gives back at least as
// many nodes as it takes, so once made the reserve lasts for all erases.
void SegmentTree::reserve() {
  constexpr size_t kNeed = 3 * kMaxDepth + 4;
  if (free_.size() >= kNeed) return;
  const uint32_t chunk = nodes_ / kChunk;
  if (chunk == kChunks) throw std::bad_alloc();
  free_.reserve(nodes_ + kChunk);
  chunks_[chunk].store(new Node[kChunk], kRelease);
  nodes_ += kChunk;
  for (uint32_t i = nodes_; i-- > nodes_ - kChunk;)
    if (i) free_.push_back(i);
}

uint64_t SegmentTree::make(const Draft &draft, unsigned from, unsigned to) noexcept {
  const uint32_t index = free_.back();
  free_.pop_back();
  Node &n = chunks_[index / kChunk].load(kRelaxed)[index % kChunk];
  const uint32_t generation = n.generation.load(kRelaxed) + 1;
  n.generation.store(generation, kRelaxed);
  n.level.store(draft.level, kRelease);
  n.count.store(to - from, kRelease);
  for (unsigned i = 0; i < kFanout; ++i) {
    const bool used = from + i < to;
    const Segment &e = draft.entry[used ? from + i : 0];
    n.key[i].store(used ? e.start : UINT64_MAX, kRelease);
    if (!used) continue;
    n.value[i].store(e.end, kRelease);
    n.meta[i].store(e.meta, kRelease);
    n.device[i].store(e.device, kRelease);
  }
  return uint64_t{index} << 32 | generation;
}

void SegmentTree::load(uint64_t reference, Draft &draft) const noexcept {
  const Node &n = node(reference);
  draft.count = n.count.load(kRelaxed);
  draft.level = n.level.load(kRelaxed);
  for (unsigned i = 0; i < draft.count; ++i)
    draft.entry[i] = {n.key[i].load(kRelaxed), n.value[i].load(kRelaxed), n.meta[i].load(kRelaxed),
                      n.device[i].load(kRelaxed)};
}

// The way to the leaf where start belongs; true when the leaf has an entry with exactly this start.
bool SegmentTree::descend(uint64_t start, Path &path) const noexcept {
  path.depth = 0;
  for (uint64_t reference = root_.load(kRelaxed); reference;) {
    const Node &n = node(reference);
    const unsigned r = rank(n, start);
    const unsigned slot = r ? r - 1 : 0;
    path.step[path.depth++] = {reference, slot};
    if (n.level.load(kRelaxed) == 0) return r && n.key[slot].load(kRelaxed) == start;
    reference = n.value[slot].load(kRelaxed);
  }
  return false;
}

// Makes a change visible: one store puts `reference` in the place of the node at `depth` of the path.
void SegmentTree::publish(const Path &path, unsigned depth, uint64_t reference, const Retired &retired) noexcept {
  if (depth == 0)
    root_.store(reference, kRelease);
  else
    node(path.step[depth - 1].reference).value[path.step[depth - 1].slot].store(reference, kRelease);
  for (unsigned i = 0; i < retired.count; ++i)
    free_.push_back(static_cast<uint32_t>(retired.reference[i] >> 32));  // reserve() made room for every node
}

void SegmentTree::insert(const Segment &segment) {
  reserve();
  Path path;
  descend(segment.start, path);
  ++size_;
  Retired retired;
  Draft draft;
  if (path.depth == 0) {
    draft.entry[draft.count++] = segment;
    return publish(path, 0, make(draft, 0, 1), retired);
  }
  Segment carry = segment;  // what goes into the node at this depth, and behind which slot
  uint64_t left = 0;        // what takes the place of the child that was split
  for (unsigned depth = path.depth; depth-- > 0;) {
    const Step &step = path.step[depth];
    load(step.reference, draft);
    retired.add(step.reference);
    if (left) draft.entry[step.slot].end = left;
    unsigned at = step.slot;
    if (left || draft.entry[at].start < carry.start) ++at;
    const bool last = at == draft.count;
    std::move_backward(draft.entry.begin() + at, draft.entry.begin() + draft.count,
                       draft.entry.begin() + draft.count + 1);
    draft.entry[at] = carry;
    if (++draft.count <= kFanout) return publish(path, depth, make(draft, 0, draft.count), retired);
    // Ascending insertion leaves full nodes behind; any other splits them in the middle.
    const unsigned cut = last ? kFanout : draft.count / 2;
    left = make(draft, 0, cut);
    carry = {draft.entry[cut].start, make(draft, cut, draft.count), 0, 0};
  }
  Draft root;
  root.level = draft.level + 1;
  root.count = 2;
  root.entry[0] = {draft.entry[0].start, left, 0, 0};
  root.entry[1] = carry;
  publish(path, 0, make(root, 0, 2), retired);
}

// Joins a node that has become small with a neighbour under the same parent, where both fit well into one node.
bool SegmentTree::merge(const Path &path, unsigned depth, Draft &draft, Draft &parent,
                        Retired &retired) const noexcept {
  if (depth == 0 || draft.count >= kFanout / 4) return false;
  const unsigned slot = path.step[depth - 1].slot;
  load(path.step[depth - 1].reference, parent);
  if (parent.count < 2) return false;
  const unsigned other = slot ? slot - 1 : 1;
  Draft sibling;
  load(parent.entry[other].end, sibling);
  if (draft.count + sibling.count > kFanout * 3 / 4) return false;
  retired.add(parent.entry[other].end);
  Draft &low = other < slot ? sibling : draft;
  Draft &high = other < slot ? draft : sibling;
  const unsigned high_slot = std::max(slot, other);
  // The first key of an inner node may be above what lies below it; the parent's key for the node is not.
  if (high.level) high.entry[0].start = parent.entry[high_slot].start;
  std::copy_n(high.entry.begin(), high.count, low.entry.begin() + low.count);
  low.count += high.count;
  if (&low != &draft) draft = low;
  std::move(parent.entry.begin() + high_slot + 1, parent.entry.begin() + parent.count,
            parent.entry.begin() + high_slot);
  --parent.count;
  return true;
}

void SegmentTree::erase(uint64_t start) noexcept {
  Path path;
  if (!descend(start, path)) return;
  --size_;
  Retired retired;
  Draft draft;
  unsigned depth = path.depth - 1;
  load(path.step[depth].reference, draft);
  retired.add(path.step[depth].reference);
  unsigned gone = path.step[depth].slot;
  for (;;) {
    std::move(draft.entry.begin() + gone + 1, draft.entry.begin() + draft.count, draft.entry.begin() + gone);
    if (--draft.count > 0 || depth == 0) break;
    --depth;  // the node is empty: its parent loses a slot
    load(path.step[depth].reference, draft);
    retired.add(path.step[depth].reference);
    gone = path.step[depth].slot;
  }
  Draft parent;
  while (draft.count && merge(path, depth, draft, parent, retired)) {
    const unsigned slot = path.step[--depth].slot;
    retired.add(path.step[depth].reference);
    parent.entry[slot ? slot - 1 : 0].end = make(draft, 0, draft.count);
    draft = parent;
  }
  // An inner root with one child is not needed.
  const bool collapse = depth == 0 && draft.level > 0 && draft.count == 1;
  const uint64_t reference = draft.count == 0 ? 0 : collapse ? draft.entry[0].end : make(draft, 0, draft.count);
  publish(path, depth, reference, retired);
}

void SegmentTree::set_meta(uint64_t start, uint64_t meta) noexcept {
  Path path;
  if (!descend(start, path)) return;
  const Step &leaf = path.step[path.depth - 1];
  node(leaf.reference).meta[leaf.slot].store(meta, kRelease);
}

void SegmentTree::set_device(uint64_t start, uint64_t device) noexcept {
  Path path;
  if (!descend(start, path)) return;
  const Step &leaf = path.step[path.depth - 1];
  node(leaf.reference).device[leaf.slot].store(device, kRelease);
}

}  // namespace hp
