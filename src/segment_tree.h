// What is pinned, by address: disjoint ranges in order. One writer at a time (its caller holds a lock), any number of
// readers that take none, never wait for the writer and never allocate.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hp {

// One range with what belongs to it. `meta`, `device` and `end` may be changed in place; start may not.
struct Segment {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t meta = 0;
  uint64_t device = 0;
};

// A B+ tree whose nodes are not changed once they can be reached, but copied; only references to children and their
// bounds, end, meta and device are stored in place. A reference is the place of a node with a generation, and each node
// says by which reference it goes. That changes before the node is used again, so a reader that still looks at it sees
// that and starts over. Nodes are never given back to the system, so such a late look is never at unmapped memory.
class SegmentTree {
public:
  SegmentTree() = default;
  ~SegmentTree();
  SegmentTree(const SegmentTree &) = delete;
  SegmentTree &operator=(const SegmentTree &) = delete;

  // The range that holds addr, or, with `or_next`, else the first one after it. Any thread. `out` means something only
  // when the answer is true. What the writer changes meanwhile may be seen or not; all else is.
  bool find(uint64_t addr, Segment &out, bool or_next = false) const noexcept {
    return or_next ? find_or_next(addr, out) : find_holding(addr, out);
  }

  // Where the next range after addr begins, or the one that holds it ends; UINT64_MAX if there is none.
  uint64_t border_after(uint64_t addr) const noexcept {
    Segment s;
    if (!find(addr, s, true)) return UINT64_MAX;
    return s.start <= addr ? s.end : s.start;
  }

  // The rest is for the writer. The last range that begins before addr.
  bool last_before(uint64_t addr, Segment &out) const noexcept;

  // insert() may throw bad_alloc, and then has changed nothing. The others never fail nor allocate, and do nothing when no
  // range has this start.
  void insert(const Segment &segment);
  void erase(uint64_t start) noexcept;
  void set_meta(uint64_t start, uint64_t meta) noexcept;
  void set_device(uint64_t start, uint64_t device) noexcept;
  void set_end(uint64_t start, uint64_t end) noexcept;  // not beyond what it was
  size_t size() const noexcept { return size_; }

private:
  static constexpr unsigned kLine = 8;       // words in a cache line
  static constexpr unsigned kMaxDepth = 12;  // inner nodes above each other

  using Word = std::atomic<uint64_t>;
  // Low bit: a leaf. High bits: the place, in words from the beginning of all nodes. Between them the generation, which
  // takes hours to come round. 0 is no node: the very first one is a leaf.
  using Reference = uint64_t;
  static constexpr unsigned kPlaceShift = 37;
  static constexpr Reference kPlaceMask = UINT64_MAX << kPlaceShift;
  static constexpr Reference kGeneration = 2;
  static constexpr Reference kLeafBit = 1;
  static constexpr size_t kMaxBytes = size_t{8} << (64 - kPlaceShift);

  struct alignas(64) Leaf {
    static constexpr Reference kFlag = kLeafBit;
    static constexpr unsigned kFanout = kLine - 1;
    Word self{0};
    Word key[kFanout];  // first addresses in order; unused ones hold UINT64_MAX
    struct {
      Word end, meta, device;
    } value[kFanout];
  };
  struct alignas(64) Inner {
    static constexpr Reference kFlag = 0;
    static constexpr unsigned kFanout = kLine * kLine;
    Word self{0};
    Word guide[kLine - 1];  // every eighth key again, so that two lines say which child it is
    Word key[kFanout];      // key[i] is the lower bound of child[i + 1]; unused ones hold UINT64_MAX
    Word child[kFanout];    // unused ones hold 0
  };

  // The way from the root to a leaf: the inner nodes, each with the slot that was followed.
  struct Step {
    Reference node;
    unsigned slot;
  };
  struct Path {
    unsigned depth = 0;
    std::array<Step, kMaxDepth> step;
    Reference leaf = 0;
    unsigned rank = 0;  // how many of the leaf's keys are not above what was looked for
  };
  // An inner node as the writer builds it, with room for the child that makes it overflow.
  struct Draft {
    unsigned count = 0;
    std::array<uint64_t, Inner::kFanout + 1> key;  // of the child with the same index
    std::array<Reference, Inner::kFanout + 1> child;
    void insert(unsigned slot, uint64_t k, Reference c) noexcept;
    void erase(unsigned slot) noexcept;
  };
  // Nodes that a change replaces; they are free once the change is visible.
  struct Retired {
    unsigned count = 0;
    std::array<Reference, 2 * kMaxDepth + 2> node;
    void add(Reference r) noexcept { node[count++] = r; }
  };
  struct FreeList {
    Reference first = 0;  // linked by key[0]
    size_t count = 0;
  };

  static bool is_leaf(Reference r) noexcept { return r & kLeafBit; }
  template <class Node>
  Node &node(Reference r) const noexcept {
    return *reinterpret_cast<Node *>(nodes_ + (r >> kPlaceShift));
  }
  static unsigned rank(const Word *key, uint64_t addr) noexcept;
  static unsigned rank(const Leaf &n, uint64_t addr) noexcept { return rank(n.key, addr); }
  static unsigned rank(const Inner &n, uint64_t addr) noexcept;
  static unsigned count(const Leaf &n) noexcept { return rank(n, UINT64_MAX - 1); }
  static unsigned count(const Inner &n) noexcept { return rank(n, UINT64_MAX - 1) + 1; }
  static Segment entry(const Leaf &n, unsigned i) noexcept;
  static void prefetch_values(const Leaf &n) noexcept;
  static void set_entry(Leaf &n, unsigned i, const Segment &s) noexcept;

  bool find_holding(uint64_t addr, Segment &out) const noexcept;
  bool find_or_next(uint64_t addr, Segment &out) const noexcept;
  bool look(uint64_t addr, Segment &out, bool &found) const noexcept;

  void reserve();
  void map_more();
  template <class Node>
  FreeList &free_list() noexcept;
  template <class Node>
  Node &take(Reference &reference) noexcept;
  template <class Node>
  void give(Node &n) noexcept;
  void give_all(const Retired &retired) noexcept;
  Reference make(const Segment *entries, unsigned count) noexcept;
  Reference make(const Draft &draft, unsigned from, unsigned to) noexcept;
  void load(Reference reference, Draft &draft) const noexcept;

  bool descend(uint64_t start, Path &path) const noexcept;
  void raise_bound(const Path &path, uint64_t end) noexcept;
  void publish(const Path &path, unsigned depth, Reference reference) noexcept;
  void split_leaf(const Path &path, const Segment &segment) noexcept;
  void replace_by_two(const Path &path, Reference left, uint64_t key, Reference right, Retired &retired) noexcept;
  template <class Node>
  int neighbour(const Path &path, unsigned depth, unsigned entries) const noexcept;
  void merge_leaf(const Path &path, int side) noexcept;
  void shrink(const Path &path, Draft &draft, Retired &retired) noexcept;

  // What readers go by, away from what every change writes.
  alignas(64) std::atomic<Reference> root_{0};
  uint64_t *nodes_ = nullptr;  // set before the first root

  alignas(64) size_t size_ = 0;
  size_t mapped_ = 0;  // bytes of address space, how much of it is usable, and how much nodes were made in
  size_t usable_ = 0;
  size_t used_ = 0;
  FreeList free_leaves_;
  FreeList free_inners_;
  uint64_t last_ = 0;    // where the last insert began
  unsigned height_ = 0;  // inner nodes on every way down
};

}  // namespace hp
