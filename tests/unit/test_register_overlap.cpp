// Ranges that share pages, in every order of registering and releasing.
#include <algorithm>
#include <numeric>
#include <random>

#include "register_test.h"

using namespace test;

namespace {

struct Range {
  size_t offset, len;
  size_t first() const { return offset / page(); }
  size_t last() const { return (offset + len - 1) / page(); }
};

// How many live registrations cover each page: what has to be pinned.
class Cover {
public:
  explicit Cover(const Memory &memory) : memory_(memory), count_(memory.size() / page()) {}
  void add(const Range &r, int n) {
    for (size_t p = r.first(); p <= r.last(); ++p) count_[p] += n;
  }

  // Holds the simulated driver and the library's answers against it, page by page.
  void check() const {
    std::vector<bool> held(count_.size());
    for (const hps_registration &s : pinned_by_driver()) {
      const size_t first = (reinterpret_cast<uintptr_t>(s.ptr) - memory_.address()) / page();
      bool needed = false;
      for (size_t p = first; p < first + s.length / page(); ++p) {
        held.at(p) = true;
        needed = needed || count_.at(p) > 0;
      }
      if (!needed) FAIL("pages " << first << " + " << s.length / page() << " are held for nobody");
    }
    for (size_t p = 0; p < count_.size(); ++p) {
      if (count_[p] > 0 && !held[p]) FAIL("page " << p << " is not pinned for " << count_[p] << " registration(s)");
      if ((hps_pinned(memory_.page_at(p), 1) == HPS_ALL) != held[p]) FAIL("page " << p << " in the driver's table");
      if ((hp_query(memory_.page_at(p), 1, nullptr) == HP_OK) != held[p]) FAIL("the query for page " << p);
    }
  }

private:
  const Memory &memory_;
  std::vector<int> count_;
};

void in_order(const Memory &memory, const std::vector<Range> &ranges, const std::vector<size_t> &registering,
              const std::vector<size_t> &releasing) {
  Cover cover(memory);
  for (size_t i : registering) {
    if (hp_register(memory.at(ranges[i].offset), ranges[i].len, HP_REGISTER_REQUIRED) != HP_OK) FAIL(hp_last_error());
    cover.add(ranges[i], 1);
    cover.check();
  }
  for (size_t i : releasing) {
    if (hp_unregister(memory.at(ranges[i].offset)) != HP_OK) FAIL(hp_last_error());
    cover.add(ranges[i], -1);
    cover.check();
  }
  if (hps_live_registrations() != 0) FAIL("something is left");
}

// Registers in every order and, for each, releases in every order.
void in_every_order(const Memory &memory, const std::vector<Range> &ranges) {
  std::vector<size_t> registering(ranges.size());
  std::iota(registering.begin(), registering.end(), 0u);
  do {
    std::vector<size_t> releasing(ranges.size());
    std::iota(releasing.begin(), releasing.end(), 0u);
    do {
      in_order(memory, ranges, registering, releasing);
    } while (std::next_permutation(releasing.begin(), releasing.end()));
  } while (std::next_permutation(registering.begin(), registering.end()));
}

}  // namespace

TEST_CASE("ranges that share pages, in every order") {
  const Fresh fresh("maps=0");
  const Memory memory(16 * page());
  const size_t p = page();
  SECTION("two small buffers in one page") { in_every_order(memory, {{p, 100}, {p + 200, 100}}); }
  SECTION("three small buffers in one page and one in the next") {
    in_every_order(memory, {{p, 8}, {p + 8, 8}, {2 * p - 8, 8}, {2 * p, 8}});
  }
  SECTION("a buffer across a page border, and one on each side") {
    in_every_order(memory, {{2 * p - 4, 8}, {p, 16}, {2 * p + 16, 16}});
  }
  SECTION("a part of a range") { in_every_order(memory, {{p, 8 * p}, {3 * p, 2 * p}, {3 * p + 1, 1}}); }
  SECTION("nested three deep") { in_every_order(memory, {{p, 9 * p}, {2 * p, 7 * p}, {3 * p, 5 * p}, {5 * p, p}}); }
  SECTION("partial overlaps on both sides") { in_every_order(memory, {{4 * p, 4 * p}, {2 * p, 3 * p}, {7 * p, 3 * p}}); }
  SECTION("a chain") { in_every_order(memory, {{p, 3 * p}, {3 * p, 3 * p}, {5 * p, 3 * p}, {7 * p, 3 * p}}); }
  SECTION("touching ranges") { in_every_order(memory, {{p, 2 * p}, {3 * p, 2 * p}, {5 * p, 2 * p}}); }
  SECTION("touching ranges and one over all of them") {
    in_every_order(memory, {{p, 2 * p}, {3 * p, 2 * p}, {5 * p, 2 * p}, {2 * p, 4 * p}});
  }
  SECTION("unaligned ranges that touch inside a page") {
    in_every_order(memory, {{p, 2 * p + 7}, {3 * p + 7, p}, {4 * p + 7, 3 * p - 7}});
  }
  SECTION("islands bridged by one") { in_every_order(memory, {{2 * p, p}, {5 * p, p}, {8 * p, p}, {p, 10 * p}}); }
  SECTION("the same end, and the same start but for a byte") {
    in_every_order(memory, {{2 * p, 6 * p}, {4 * p, 4 * p}, {2 * p + 1, 3 * p}, {7 * p, p}});
  }
}

TEST_CASE("random ranges, in random orders") {
  const Fresh fresh("maps=0");
  const Memory memory(12 * page());
  std::mt19937 random(20240611);
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    std::vector<Range> ranges;
    while (ranges.size() < 5) {
      const size_t from = random() % (memory.size() - 1);
      const size_t len = 1 + random() % std::min(memory.size() - from, 5 * page());
      const auto same_base = [&](const Range &r) { return r.offset == from; };
      if (std::none_of(ranges.begin(), ranges.end(), same_base)) ranges.push_back({from, len});
    }
    std::vector<size_t> registering(ranges.size());
    std::iota(registering.begin(), registering.end(), 0u);
    std::vector<size_t> releasing = registering;
    std::shuffle(registering.begin(), registering.end(), random);
    std::shuffle(releasing.begin(), releasing.end(), random);
    in_order(memory, ranges, registering, releasing);
  }
}

TEST_CASE("only pages that are not pinned yet go to the driver") {
  const Fresh fresh("trace=1");
  const Memory memory(16 * page());
  const bool small = backend().max_segment < 16 * page();
  REQUIRE(hp_register(memory.page_at(4), 2 * page(), 0) == HP_OK);
  REQUIRE(hp_register(memory.page_at(8), 2 * page(), 0) == HP_OK);
  const uint64_t calls = hps_calls("register");

  // Parts of it, to the byte and beyond the last byte.
  REQUIRE(hp_register(memory.at(4 * page() + 10), 10, 0) == HP_OK);
  REQUIRE(hp_register(memory.page_at(5), page(), 0) == HP_OK);
  REQUIRE(hp_register(memory.at(5 * page() + 1), page() - 1, 0) == HP_OK);
  CHECK(hps_calls("register") == calls);
  CHECK(region(memory.page_at(5), 1).references == 4);

  // A superset of both, whose three gaps are three calls.
  REQUIRE(hp_register(memory.at(3 * page() + 9), 8 * page(), 0) == HP_OK);
  const auto made = traced(is_register);
  REQUIRE(made.size() == calls + 3);
  const size_t gaps[][2] = {{3, 1}, {6, 2}, {10, 2}};
  for (size_t i = 0; i < 3; ++i) {
    CHECK(made[calls + i].ptr == memory.page_at(gaps[i][0]));
    CHECK(made[calls + i].length == gaps[i][1] * page());
  }
  CHECK(hps_calls("unregister") == 0);
  if (!small) CHECK(stats().segments == 5);
  CHECK(hp_unregister_all(kNoLimit) == HP_OK);
}

TEST_CASE("ranges that merely touch are strangers") {
  const Fresh fresh;
  const Memory memory(8 * page());
  const bool upwards = GENERATE(true, false);
  const size_t a = upwards ? 2 : 4;
  const size_t b = upwards ? 4 : 2;
  REQUIRE(hp_register(memory.page_at(a), 2 * page(), 0) == HP_OK);
  REQUIRE(hp_register(memory.page_at(b), 2 * page(), 0) == HP_OK);
  CHECK(hps_calls("register") == 2);
  CHECK(region(memory.page_at(a), 2 * page()).references == 1);
  CHECK(region(memory.page_at(b), 2 * page()).references == 1);
  REQUIRE(hp_unregister(memory.page_at(a)) == HP_OK);
  CHECK(hps_pinned(memory.page_at(a), 2 * page()) == HPS_NONE);
  CHECK(hps_pinned(memory.page_at(b), 2 * page()) == HPS_ALL);
  REQUIRE(hp_unregister(memory.page_at(b)) == HP_OK);
  CHECK(hps_pinned(memory.at(), memory.size()) == HPS_NONE);
}

TEST_CASE("a count belongs to its base, also where pages are shared") {
  const Fresh fresh;
  const Memory memory(8 * page());
  for (int i = 0; i < 3; ++i) REQUIRE(hp_register(memory.at(page()), 10, 0) == HP_OK);
  for (int i = 0; i < 2; ++i) REQUIRE(hp_register(memory.at(page() + 10), 10, 0) == HP_OK);
  CHECK(hps_calls("register") == 1);
  CHECK(region(memory.at(page()), 1).references == 5);
  for (uint32_t left : {4u, 3u, 2u}) {
    REQUIRE(hp_unregister(memory.at(page())) == HP_OK);
    CHECK(region(memory.at(page() + 10), 1).references == left);
  }
  CHECK(hp_unregister(memory.at(page())) == HP_E_NOT_FOUND);
  REQUIRE(hp_unregister(memory.at(page() + 10)) == HP_OK);
  CHECK(hps_pinned(memory.at(page()), 20) == HPS_ALL);
  REQUIRE(hp_unregister(memory.at(page() + 10)) == HP_OK);
  CHECK(hps_pinned(memory.at(page()), 20) == HPS_NONE);
}

TEST_CASE("device pointers hold in every segment of a range") {
  const Fresh fresh("device_offset=1T");
  const Memory memory(8 * page());
  REQUIRE(hp_register(memory.page_at(2), page(), 0) == HP_OK);
  REQUIRE(hp_register(memory.page_at(1), 4 * page(), 0) == HP_OK);
  for (size_t at = page(); at < 5 * page(); at += 512) {
    void *device = nullptr;
    REQUIRE(hp_device_pointer(memory.at(at), &device) == HP_OK);
    CHECK(reinterpret_cast<uintptr_t>(device) == memory.address(at) + (uint64_t{1} << 40));
  }
  CHECK(hp_unregister(memory.page_at(1)) == HP_OK);
  CHECK(hp_unregister(memory.page_at(2)) == HP_OK);
}
