// The table of segments against std::map, against a shortage of memory, and against readers that look all the while.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <map>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "catch.h"
#include "segment_tree.h"

namespace {

// How much memory may be made usable from now on.
std::atomic<size_t> g_usable{SIZE_MAX};

}  // namespace

// In the place of libc's, for the code under test.
extern "C" int mprotect(void *p, size_t bytes, int prot) noexcept {
  if (bytes > g_usable) {
    errno = ENOMEM;
    return -1;
  }
  g_usable -= bytes;
  return static_cast<int>(syscall(SYS_mprotect, p, bytes, prot));
}

namespace {

// No more memory than this for as long as it lives.
struct MemoryLimit {
  explicit MemoryLimit(size_t bytes) { g_usable = bytes; }
  ~MemoryLimit() { g_usable = SIZE_MAX; }
};

// No more address space than what the process has and this.
class SpaceLimit {
public:
  explicit SpaceLimit(rlim_t bytes) {
    std::ifstream status("/proc/self/statm");
    rlim_t pages = 0;
    status >> pages;
    getrlimit(RLIMIT_AS, &old_);
    rlimit tight = old_;
    tight.rlim_cur = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + bytes;
    setrlimit(RLIMIT_AS, &tight);
  }
  ~SpaceLimit() { setrlimit(RLIMIT_AS, &old_); }

private:
  rlimit old_{};
};

using hp::Segment;
using hp::SegmentTree;

// Everything in a segment follows from its start, so that one put together from two shows.
uint64_t mixed(uint64_t x) { return (x ^ x >> 31) * 0x9e3779b97f4a7c15; }
Segment segment_at(uint64_t start, uint64_t bytes) {
  return {start, start + bytes, mixed(start), mixed(start + bytes)};
}
bool sound(const Segment &s) { return s.end > s.start && s.meta == mixed(s.start) && s.device == mixed(s.end); }

bool same(const Segment &a, const Segment &b) {
  return a.start == b.start && a.end == b.end && a.meta == b.meta && a.device == b.device;
}

// A std::map that answers as the tree should.
class Model {
public:
  std::map<uint64_t, Segment> segments;

  const Segment *find(uint64_t addr, bool or_next) const {
    auto next = segments.upper_bound(addr);
    if (next != segments.begin() && std::prev(next)->second.end > addr) return &std::prev(next)->second;
    return or_next && next != segments.end() ? &next->second : nullptr;
  }
  const Segment *last_before(uint64_t addr) const {
    auto next = segments.lower_bound(addr);
    return next == segments.begin() ? nullptr : &std::prev(next)->second;
  }
  bool agrees(const SegmentTree &tree, uint64_t addr) const {
    Segment before;
    const Segment *last = last_before(addr);
    if (tree.last_before(addr, before) != (last != nullptr) || (last && !same(before, *last))) return false;
    for (bool or_next : {false, true}) {
      Segment got;
      const Segment *want = find(addr, or_next);
      if (tree.find(addr, got, or_next) != (want != nullptr)) return false;
      if (want && !same(got, *want)) return false;
    }
    return tree.size() == segments.size();
  }
  // At every border and next to it.
  bool agrees_everywhere(const SegmentTree &tree) const {
    for (const auto &[start, s] : segments)
      for (uint64_t addr : {start - 1, start, s.end - 1, s.end})
        if (!agrees(tree, addr)) return false;
    return agrees(tree, 0) && agrees(tree, UINT64_MAX - 1) && agrees(tree, UINT64_MAX);
  }
};

struct Both {
  SegmentTree tree;
  Model model;

  void insert(const Segment &s) {
    tree.insert(s);
    model.segments[s.start] = s;
  }
  void erase(uint64_t start) {
    tree.erase(start);
    model.segments.erase(start);
  }
};

// Segments of any size, mostly small, where there is room: some touch, some lie across where others began before.
void random_operations(uint64_t seed, uint64_t span, int operations) {
  CAPTURE(seed, span);
  std::mt19937_64 random(seed);
  Both both;
  auto &segments = both.model.segments;
  for (int i = 0; i < operations; ++i) {
    const bool growing = i / (operations / 5) % 2 == 0;
    const uint64_t start = 1 + random() % span;
    const auto next = segments.upper_bound(start);
    if ((random() % 4 != 0) != growing) {
      if (next != segments.end()) both.erase(next->first);
    } else if (const Segment *s = both.model.find(start, false)) {
      both.tree.set_meta(start + 1, 0);  // mostly no start: nothing happens
      both.tree.set_device(start + 1, 0);
      if (segments.count(start + 1)) segments[start + 1].meta = segments[start + 1].device = 0;
      Segment &known = segments[s->start];
      both.tree.set_meta(known.start, known.meta = random());
      both.tree.set_device(known.start, known.device = random());
      if (start > known.start && random() % 2) {
        if (random() % 2) both.insert({start, known.end, known.meta, known.device});  // as when one is cut in two
        both.tree.set_end(known.start, known.end = start);
      }
      if (!segments.count(start)) both.tree.erase(start);
    } else {
      const uint64_t room = (next == segments.end() ? span * 2 : next->first) - start;
      both.insert(segment_at(start, 1 + random() % std::min(room, random() % 8 ? 8 : span / 4 + 1)));
    }
    if (!both.model.agrees(both.tree, random() % (span * 2))) FAIL("differs after operation " << i);
  }
  REQUIRE(both.model.agrees_everywhere(both.tree));
}

constexpr uint64_t kBase = 0x7f0000000000;
constexpr uint64_t kPage = 4096;
constexpr size_t kMany = size_t{4} << 20;  // bytes

// Inserts one segment after another until there is no memory for more, and says how many that were.
template <class Nth>
size_t fill(SegmentTree &tree, Nth nth) {
  for (uint64_t n = 0;; ++n) {
    try {
      tree.insert(nth(n));
    } catch (const std::bad_alloc &) {
      return n;
    }
  }
}
size_t fill(SegmentTree &tree, uint64_t start, uint64_t step) {
  return fill(tree, [=](uint64_t i) { return segment_at(start + i * step, kPage); });
}

size_t count_found(const SegmentTree &tree, uint64_t start, uint64_t step, size_t n) {
  size_t found = 0;
  for (size_t i = 0; i < n; ++i) {
    Segment s;
    const uint64_t at = start + i * step;
    found += tree.find(at + kPage / 2, s) && same(s, segment_at(at, kPage)) && !tree.find(at + kPage, s);
  }
  return found;
}

}  // namespace

TEST_CASE("an empty tree finds nothing") {
  SegmentTree tree;
  Segment s;
  for (uint64_t addr : {uint64_t{0}, uint64_t{1}, kBase, UINT64_MAX}) {
    CHECK_FALSE(tree.find(addr, s));
    CHECK_FALSE(tree.find(addr, s, true));
  }
  tree.erase(kBase);
  tree.set_meta(kBase, 1);
  tree.set_device(kBase, 1);
  CHECK(tree.size() == 0);
}

TEST_CASE("the first and the last address") {
  Both both;
  both.insert(segment_at(0, 1));
  both.insert({UINT64_MAX - 1, UINT64_MAX, 1, 2});
  CHECK(both.model.agrees(both.tree, 0));
  CHECK(both.model.agrees(both.tree, 1));
  CHECK(both.model.agrees(both.tree, UINT64_MAX - 1));
  CHECK(both.model.agrees(both.tree, UINT64_MAX));
  both.erase(0);
  both.erase(UINT64_MAX - 1);
  CHECK(both.model.agrees(both.tree, 0));
}

TEST_CASE("random operations agree with std::map") {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    random_operations(seed, 20, 2000);
    random_operations(seed, 500, 5000);
    random_operations(seed, 20000, 40000);
  }
  random_operations(100, 400000, 200000);
}

TEST_CASE("whatever the order of coming and going") {
  const size_t n = GENERATE(as<size_t>{}, 1, 7, 8, 9, 500, 20000);  // 20000: up to three inner nodes above each leaf
  std::vector<uint64_t> ascending;
  for (size_t i = 1; i <= n; ++i) ascending.push_back(i * 2 * kPage);
  std::vector<std::vector<uint64_t>> orders(4, ascending);
  std::reverse(orders[1].begin(), orders[1].end());
  std::shuffle(orders[2].begin(), orders[2].end(), std::mt19937_64(n));
  // From both ends to the middle.
  for (size_t i = 0; i < n; ++i) orders[3][i] = i % 2 ? ascending[n - 1 - i / 2] : ascending[i / 2];
  for (const auto &coming : orders) {
    Both both;
    for (const auto &going : orders) {
      for (uint64_t start : coming) both.insert(segment_at(start, kPage));
      if (!both.model.agrees_everywhere(both.tree)) FAIL("full");
      for (size_t i = 0; i < n; ++i) {
        both.erase(going[i]);
        if (!both.model.agrees(both.tree, going[i])) FAIL("after erasing " << i);
        if (i == n / 2 && !both.model.agrees_everywhere(both.tree)) FAIL("after erasing " << i);
      }
      REQUIRE(both.tree.size() == 0);
    }
  }
}

TEST_CASE("the next one lies past any number of erased ones") {
  Both both;
  for (uint64_t i = 1; i <= 5000; ++i) both.insert(segment_at(i * 2 * kPage, kPage));
  std::mt19937_64 random(1);
  auto &segments = both.model.segments;
  while (segments.size() > 200) {
    // A run of up to 150 goes.
    auto it = std::next(segments.begin(), static_cast<std::ptrdiff_t>(random() % (segments.size() - 151)));
    const uint64_t before = it->first;
    for (uint64_t n = random() % 150; n > 0; --n) {
      const uint64_t start = std::next(it)->first;
      both.erase(start);
    }
    if (!both.model.agrees(both.tree, before + kPage)) FAIL("behind " << before);
  }
  REQUIRE(both.model.agrees_everywhere(both.tree));
}

TEST_CASE("without memory an insert changes nothing, and all else works") {
  // Little memory, or little address space when the first segment comes.
  const bool space = GENERATE(true, false);
  SegmentTree tree;
  if (space) {
    SpaceLimit limit(kMany * 3 / 2);
    tree.insert(segment_at(1, 1));
  } else {
    tree.insert(segment_at(1, 1));
  }
  MemoryLimit limit(space ? SIZE_MAX : kMany);
  const size_t n = fill(tree, kBase, 2 * kPage);
  CAPTURE(space, n);
  CHECK(n > kMany / 60);
  CHECK(n < kMany / 30);
  CHECK(tree.size() == n + 1);
  CHECK(count_found(tree, kBase, 2 * kPage, n) == n);
  Segment s;
  CHECK_FALSE(tree.find(kBase + n * 2 * kPage, s, true));
  for (size_t i = 0; i < n; ++i) tree.erase(kBase + i * 2 * kPage);
  CHECK(tree.size() == 1);
  CHECK_FALSE(tree.find(2, s, true));
  CHECK(fill(tree, kBase, 2 * kPage) == n);
  CHECK(count_found(tree, kBase, 2 * kPage, n) == n);
}

TEST_CASE("coming and going goes on where memory is short") {
  Both both;
  MemoryLimit limit(size_t{512} << 10);
  std::mt19937_64 random(11);
  auto &segments = both.model.segments;
  unsigned refused = 0;
  for (int i = 0; i < 150000; ++i) {
    const uint64_t start = kBase + random() % 1000000 * 2;
    // In turns, so that nodes are split and joined: more come, or more go.
    if (i / 5000 % 2 == 0 || random() % 4 == 0) {
      if (segments.count(start)) continue;
      try {
        both.insert(segment_at(start, 1));
      } catch (const std::bad_alloc &) {
        ++refused;
      }
    } else if (auto it = segments.lower_bound(start); it != segments.end()) {
      both.erase(it->first);
    }
    if (!both.model.agrees(both.tree, start)) FAIL("differs after operation " << i);
  }
  CHECK(refused > 0);
  CHECK(both.model.agrees_everywhere(both.tree));
}

TEST_CASE("without any memory there is no first segment") {
  const bool space = GENERATE(true, false);
  SegmentTree tree;
  size_t n = 1;
  {
    SpaceLimit no_space(space ? 0 : RLIM_INFINITY / 2);
    MemoryLimit no_memory(space ? SIZE_MAX : 0);
    n = fill(tree, kBase, kPage);
  }
  CHECK(n == 0);
  CHECK(tree.size() == 0);
  tree.insert(segment_at(kBase, kPage));  // now there is some
  CHECK(count_found(tree, kBase, kPage, 1) == 1);
}

TEST_CASE("a segment takes less than 60 bytes, and nodes that are left nearly empty are joined") {
  const int order = GENERATE(0, 1, 2);  // ascending, descending, random
  std::mt19937_64 random(1);
  SegmentTree tree;
  size_t n = 0, kept = 0, more = 0;
  {
    MemoryLimit limit(kMany);
    if (order == 0) n = fill(tree, [](uint64_t i) { return segment_at(kBase + i * 2 * kPage, kPage); });
    if (order == 1) n = fill(tree, [](uint64_t i) { return segment_at(kBase - i * 2 * kPage, kPage); });
    if (order == 2) n = fill(tree, [&](uint64_t) { return segment_at(kBase + random() % kBase, 1); });
    // All but each 8th go, last ones first, and the memory that gives is enough for as many elsewhere.
    std::vector<uint64_t> starts;
    Segment s;
    for (uint64_t at = 0; tree.find(at, s, true); at = s.end) starts.push_back(s.start);
    for (size_t i = starts.size(); i-- > 0;)
      if (i % 8 != 0) tree.erase(starts[i]);
    kept = tree.size();
    more = fill(tree, UINT64_MAX / 2, 2 * kPage);
  }
  CAPTURE(order, n, kept, more);
  CHECK(kMany < 60 * n);
  CHECK(kept <= n / 8 + 1);
  CHECK(more > n / 2);
}

// ---- Readers beside the writer

namespace {

// Segments that stay, each in a region of its own where others come and go around it.
constexpr uint64_t kRegions = 64;
constexpr uint64_t kRegion = uint64_t{1} << 20;
uint64_t region(uint64_t i) { return kBase + i * kRegion; }
Segment stays(uint64_t i) { return segment_at(region(i) + kRegion / 2, kPage); }

struct Seen {
  uint64_t looks = 0, missed = 0, torn = 0, wrong = 0, passing = 0;
};

void read(const SegmentTree &tree, uint64_t seed, const std::atomic<bool> &stop, Seen &seen) {
  std::mt19937_64 random(seed);
  while (!stop.load(std::memory_order_relaxed)) {
    ++seen.looks;
    const Segment want = stays(random() % kRegions);
    Segment s;
    if (!tree.find(want.start + random() % kPage, s))
      ++seen.missed;
    else if (!same(s, want))
      ++seen.torn;
    // Any address: what is found must be whole and hold it.
    const uint64_t addr = region(random() % kRegions) + random() % kRegion;
    if (tree.find(addr, s)) {
      if (!sound(s)) ++seen.torn;
      if (addr < s.start || addr >= s.end) ++seen.wrong;
      ++seen.passing;
    }
    // From any address the next one is not behind the next of those that stay.
    const uint64_t i = random() % kRegions;
    const uint64_t from = region(i) + random() % (kRegion / 2);
    if (!tree.find(from, s, true))
      ++seen.missed;
    else if (!sound(s))
      ++seen.torn;
    else if (s.end <= from || s.start > stays(i).start)
      ++seen.wrong;
  }
}

// Others come and go, few or many at a time, so that the tree grows and shrinks by several levels.
void write(SegmentTree &tree, uint64_t seed, int rounds) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> there;
  for (int round = 0; round < rounds; ++round) {
    const uint64_t many = round % 3 == 0 ? 3000 : round % 3 == 1 ? 300 : 5;
    for (uint64_t i = 0; i < many; ++i) {
      const uint64_t start = region(random() % kRegions) + random() % kRegion;
      Segment s;
      if (tree.find(start, s)) continue;
      const uint64_t room = (tree.find(start, s, true) ? s.start : region(kRegions)) - start;
      tree.insert(segment_at(start, 1 + random() % std::min(room, random() % 8 ? kPage : kRegion / 4)));
      there.push_back(start);
    }
    std::shuffle(there.begin(), there.end(), random);
    for (; there.size() > (round % 2 ? 0 : many / 2); there.pop_back()) tree.erase(there.back());
  }
  for (uint64_t start : there) tree.erase(start);
}

}  // namespace

TEST_CASE("readers see whole segments, and all that stay, while others come and go") {
  SegmentTree tree;
  for (uint64_t i = 0; i < kRegions; ++i) tree.insert(stays(i));
  std::atomic<bool> stop{false};
  std::array<Seen, 2> seen;
  std::vector<std::thread> readers;
  for (size_t i = 0; i < seen.size(); ++i) readers.emplace_back([&, i] { read(tree, i, stop, seen[i]); });
  write(tree, 7, 150);
  stop = true;
  for (auto &r : readers) r.join();
  for (const Seen &s : seen) {
    CAPTURE(s.looks, s.passing);
    CHECK(s.missed == 0);
    CHECK(s.torn == 0);
    CHECK(s.wrong == 0);
    CHECK(s.looks > 100);
    CHECK(s.passing > 0);
  }
  CHECK(tree.size() == kRegions);
}

TEST_CASE("readers see the first segment come and the last one go") {
  SegmentTree tree;
  std::atomic<bool> stop{false};
  uint64_t found = 0, torn = 0;
  std::thread reader([&] {
    Segment s;
    while (!stop.load(std::memory_order_relaxed)) {
      for (bool or_next : {false, true}) {
        if (!tree.find(kBase, s, or_next)) continue;
        ++found;
        torn += !sound(s) || s.start != kBase;
      }
    }
  });
  std::mt19937_64 random(3);
  for (int i = 0; i < 200000; ++i) {
    tree.insert(segment_at(kBase, 1 + random() % kPage));
    tree.erase(kBase);
  }
  stop = true;
  reader.join();
  CAPTURE(found);
  CHECK(torn == 0);
}

TEST_CASE("readers see a changed meta and device with the segment they belong to") {
  SegmentTree tree;
  constexpr uint64_t kSegments = 50;
  auto start = [](uint64_t i) { return kBase + i * 2 * kPage; };
  for (uint64_t i = 0; i < kSegments; ++i) tree.insert({start(i), start(i) + kPage, i, i});
  std::atomic<bool> stop{false};
  uint64_t wrong = 0;
  std::thread reader([&] {
    std::mt19937_64 random(4);
    Segment s;
    while (!stop.load(std::memory_order_relaxed)) {
      const uint64_t i = random() % kSegments;
      wrong += !tree.find(start(i), s) || s.start != start(i) || s.end != start(i) + kPage || s.meta % kSegments != i ||
               s.device % kSegments != i;
    }
  });
  std::mt19937_64 random(5);
  for (int n = 0; n < 300000; ++n) {
    const uint64_t i = random() % kSegments;
    tree.set_meta(start(i), random() % 1000 * kSegments + i);
    tree.set_device(start(i), random() % 1000 * kSegments + i);
    // Neighbours that come and go have it copied meanwhile.
    tree.insert({start(i) + kPage, start(i) + 2 * kPage, i, i});
    tree.erase(start(i) + kPage);
  }
  stop = true;
  reader.join();
  CHECK(wrong == 0);
}

// A bound in an inner node outlives the range it came from; a later, wider range may lie across it.
TEST_CASE("ranges of any width are found by every address in them") {
  for (unsigned seed = 0; seed < 30; ++seed) {
    hp::SegmentTree tree;
    std::map<uint64_t, uint64_t> model;
    std::mt19937_64 random(seed);
    const uint64_t span = seed % 3 == 0 ? 500 : seed % 3 == 1 ? 5000 : 200000;
    for (int i = 0; i < 30000; ++i) {
      const uint64_t start = random() % span + 1;
      uint64_t end = start + 1 + random() % (1 + random() % 200);
      const auto next = model.lower_bound(start);
      const bool insert = (i / 5000) % 2 ? random() % 3 == 0 : random() % 3 != 0;
      if (insert) {
        if (next != model.end()) end = std::min(end, next->first);
        if (end <= start || (next != model.begin() && std::prev(next)->second > start)) continue;
        model[start] = end;
        tree.insert({start, end, start, 0});
      } else if (next != model.end()) {
        tree.erase(next->first);
        model.erase(next);
      }
      const uint64_t address = random() % (span + 300);
      const auto after = model.upper_bound(address);
      const bool inside = after != model.begin() && std::prev(after)->second > address;
      hp::Segment found;
      REQUIRE(tree.find(address, found) == inside);
      if (inside) REQUIRE(found.start == std::prev(after)->first);
      REQUIRE(tree.find(address, found, true) == (inside || after != model.end()));
    }
  }
}
