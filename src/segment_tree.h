// What is pinned, by address: disjoint ranges in order. One writer at a time (its caller holds a lock), any number of
// readers that take none, never wait for the writer and never allocate.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hp {

// One range with what belongs to it. `meta` and `device` may be changed in place; start and end may not.
struct Segment {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t meta = 0;
  uint64_t device = 0;
};

// A B+ tree whose nodes are not changed once they can be reached, but copied; readers follow references of node number
// and generation. A node that is used again gets a new generation first, so a reader that still looks at it sees that
// and starts over. Nodes are never given back, so such a late look is never at unmapped memory.
class SegmentTree {
public:
  SegmentTree() = default;
  ~SegmentTree();
  SegmentTree(const SegmentTree &) = delete;
  SegmentTree &operator=(const SegmentTree &) = delete;

  // The range that holds addr, or, with `or_next`, else the first one after it. Any thread.
  bool find(uint64_t addr, Segment &out, bool or_next = false) const noexcept;

  // The rest is for the writer. insert() may throw bad_alloc and then has changed nothing; erase() never fails.
  void insert(const Segment &segment);
  void erase(uint64_t start) noexcept;
  void set_meta(uint64_t start, uint64_t meta) noexcept;
  void set_device(uint64_t start, uint64_t device) noexcept;
  size_t size() const noexcept { return size_; }

private:
  static constexpr unsigned kFanout = 32;
  static constexpr unsigned kMaxDepth = 12;  // 32 entries in the worst case a quarter full: far beyond 2^32 nodes
  static constexpr unsigned kChunk = 256;    // nodes that are allocated together
  static constexpr unsigned kChunks = 16384;

  using Word = std::atomic<uint64_t>;
  struct alignas(64) Node {
    std::atomic<uint32_t> generation{0};
    std::atomic<uint32_t> count{0};
    std::atomic<uint32_t> level{0};  // 0: leaf
    Word key[kFanout];               // first address; unused ones hold UINT64_MAX
    Word value[kFanout];             // leaf: end; else reference of the child
    Word meta[kFanout];              // leaf only, like device
    Word device[kFanout];
  };
  // A node as the writer builds it, with room for the entry that makes it overflow.
  struct Draft {
    unsigned count = 0;
    unsigned level = 0;
    std::array<Segment, kFanout + 1> entry;  // of an inner node: start is the key, end the child's reference
  };
  // The way from the root to a leaf: which node, and which of its slots was followed.
  struct Step {
    uint64_t reference = 0;
    unsigned slot = 0;
  };
  struct Path {
    unsigned depth = 0;
    std::array<Step, kMaxDepth> step;
  };
  // Nodes that a change replaces; they are free once the change is visible.
  struct Retired {
    unsigned count = 0;
    std::array<uint64_t, 2 * kMaxDepth> reference;
    void add(uint64_t r) noexcept { reference[count++] = r; }
  };

  Node &node(uint64_t reference) const noexcept {
    auto index = static_cast<uint32_t>(reference >> 32);
    return chunks_[index / kChunk].load(std::memory_order_acquire)[index % kChunk];
  }
  static unsigned rank(const Node &n, uint64_t addr) noexcept;
  bool look(uint64_t addr, bool or_next, Segment &out, bool &found) const noexcept;
  void reserve();
  uint64_t make(const Draft &draft, unsigned from, unsigned to) noexcept;
  void load(uint64_t reference, Draft &draft) const noexcept;
  bool descend(uint64_t start, Path &path) const noexcept;
  void publish(const Path &path, unsigned depth, uint64_t reference, const Retired &retired) noexcept;
  bool merge(const Path &path, unsigned depth, Draft &draft, Draft &parent, Retired &retired) const noexcept;

  std::atomic<uint64_t> root_{0};  // 0: empty; node 0 is never used
  std::atomic<Node *> chunks_[kChunks] = {};
  uint32_t nodes_ = 0;
  std::vector<uint32_t> free_;     // node numbers
  size_t size_ = 0;
};

}  // namespace hp
