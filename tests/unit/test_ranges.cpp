// Registering several ranges under one base, what becomes of a refusal among them, and copies cut at their borders. [large]:
// what would be millions of segments where these are small.
#include <algorithm>
#include <random>

#include "register_test.h"

using namespace test;

namespace {

using Ranges = std::vector<hp_range>;

int32_t pin(void *base, const Ranges &ranges, uint32_t flags = HP_REGISTER_REQUIRED) {
  return hp_register_ranges(base, ranges.data(), ranges.size(), flags);
}

// In pages.
Ranges pages(std::initializer_list<hp_range> all) {
  Ranges ranges;
  for (const hp_range &r : all) ranges.push_back({r.start * page(), r.end * page()});
  return ranges;
}

// What the driver has pinned, as offsets from the start of some memory.
Ranges segments(const Memory &memory) {
  Ranges found;
  for (const hps_registration &r : pinned_by_driver()) {
    const uint64_t start = reinterpret_cast<uintptr_t>(r.ptr) - memory.address();
    found.push_back({start, start + r.length});
  }
  std::sort(found.begin(), found.end(), [](const hp_range &a, const hp_range &b) { return a.start < b.start; });
  return found;
}

bool same(const Ranges &a, const Ranges &b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const hp_range &x, const hp_range &y) { return x.start == y.start && x.end == y.end; });
}

// Are they whole pages without a gap, none over the limit?
void check_tiles(const Memory &memory, const hp_range &range, uint64_t limit) {
  uint64_t at = range.start;
  for (const hp_range &s : segments(memory)) {
    if (s.end <= range.start || s.start >= range.end) continue;
    CHECK(s.start == at);
    CHECK(s.end - s.start <= limit);
    CHECK(s.start % page() == 0);
    CHECK(s.end % page() == 0);
    at = s.end;
  }
  CHECK(at == range.end);
}

}  // namespace

TEST_CASE("each range is a segment of its own, released last first") {
  const Fresh fresh("trace=1");
  const Memory memory(16 * page());
  const Ranges ranges = pages({{0, 3}, {3, 6}, {6, 7}});
  REQUIRE(pin(memory.at(), ranges) == HP_OK);
  CHECK(same(segments(memory), ranges));
  for (const hp_range &range : ranges) {
    const hp_region r = region(memory.at(range.start), range.end - range.start);
    CHECK(r.start == memory.address(range.start));
    CHECK(r.end == memory.address(range.end));
    CHECK(r.one_segment == 1);
    CHECK(r.references == 1);
  }
  CHECK(region(memory.page_at(2), 2 * page()).one_segment == 0);
  CHECK(hp_query(memory.page_at(6), page() + 1, nullptr) == HP_PAGEABLE);
  CHECK(stats().registrations == 1);
  CHECK(stats().segments == 3);
  CHECK(stats().pinned_bytes == 7 * page());
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
  const auto released = traced(is_unregister);
  REQUIRE(released.size() == 3);
  for (size_t i = 0; i < 3; ++i) CHECK(released[i].ptr == memory.at(ranges[2 - i].start));
}

TEST_CASE("gaps between ranges are not pinned") {
  const Fresh fresh;
  const Memory memory(16 * page());
  const Ranges ranges = pages({{2, 4}, {5, 6}, {9, 10}});
  REQUIRE(pin(memory.at(), ranges) == HP_OK);
  CHECK(same(segments(memory), ranges));
  for (size_t i = 0; i < 16; ++i) {
    const bool pinned = (i >= 2 && i < 4) || i == 5 || i == 9;
    CHECK(hp_query(memory.page_at(i), page(), nullptr) == (pinned ? HP_OK : HP_PAGEABLE));
  }
  CHECK(hp_query(memory.page_at(3), 3 * page(), nullptr) == HP_PAGEABLE);
  CHECK(hp_unregister(memory.page_at(2)) == HP_E_NOT_FOUND);  // the base is what was given as such
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("ranges are rounded out to pages, and a page that two of them share goes to the first") {
  const Fresh fresh;
  const Memory memory(16 * page());
  const uint64_t p = page();
  const uint64_t shift = 24;  // of the base
  SECTION("shared pages") {
    REQUIRE(pin(memory.at(shift), {{100, p + 50}, {p + 60, 3 * p + 1}, {5 * p, 5 * p + 1}}) == HP_OK);
    CHECK(same(segments(memory), pages({{0, 2}, {2, 4}, {5, 6}})));
  }
  SECTION("a range that has no page of its own") {
    REQUIRE(pin(memory.at(shift), {{0, 2 * p}, {2 * p + 8, 2 * p + 16}, {2 * p + 16, 2 * p + 24}, {3 * p, 3 * p + 1}}) == HP_OK);
    CHECK(same(segments(memory), pages({{0, 3}, {3, 4}})));
  }
  CHECK(hp_query(memory.at(shift), 1, nullptr) == HP_OK);
  CHECK(hp_unregister(memory.at()) == HP_E_NOT_FOUND);
  REQUIRE(hp_unregister(memory.at(shift)) == HP_OK);
}

TEST_CASE("a range over the limit of one driver call becomes several segments") {
  const Fresh fresh;
  const uint64_t limit = backend().max_segment;
  const Memory memory(std::min<uint64_t>(150 * kGiB, 12 * limit));
  const uint64_t third = memory.size() / 3 / page() * page();
  const Ranges ranges = {{0, third}, {third, 2 * third + 5 * page()}, {memory.size() - page(), memory.size()}};
  REQUIRE(pin(memory.at(), ranges) == HP_OK);
  uint64_t most = 0;
  for (const hp_range &range : ranges) {
    check_tiles(memory, range, limit);
    most += (range.end - range.start) / limit + 2;
  }
  CHECK(segments(memory).size() <= most);
  CHECK(stats().segments == segments(memory).size());
  // No huge page lies in two segments, save where a range begins or ends in one.
  const uint64_t huge = uint64_t{2} << 20;
  if (limit >= 2 * huge)
    for (const hp_range &s : segments(memory)) {
      const bool begins = std::any_of(ranges.begin(), ranges.end(), [&](const hp_range &r) { return r.start == s.start; });
      CHECK((begins || memory.address(s.start) % huge == 0));
    }
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("the same base and ranges again are counted") {
  const Fresh fresh;
  const Memory memory(16 * page());
  const Ranges ranges = pages({{0, 2}, {2, 3}, {5, 6}});
  REQUIRE(pin(memory.at(), ranges) == HP_OK);
  REQUIRE(pin(memory.at(), ranges, 0) == HP_OK);
  CHECK(hps_calls("register") == 3);
  CHECK(region(memory.page_at(5), 1).references == 2);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
  CHECK(hps_calls("unregister") == 0);
  CHECK(hp_query(memory.page_at(5), page(), nullptr) == HP_OK);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
  CHECK(hps_calls("unregister") == 3);
  CHECK(hp_unregister(memory.at()) == HP_E_NOT_FOUND);
}

TEST_CASE("a base that is registered with other ranges") {
  const Fresh fresh;
  const Memory memory(16 * page());
  const Ranges ranges = pages({{0, 2}, {4, 6}});
  REQUIRE(pin(memory.at(), ranges) == HP_OK);
  for (const Ranges &other : {pages({{0, 2}, {4, 7}}), pages({{0, 2}}), pages({{0, 3}, {4, 6}}), pages({{1, 2}, {4, 6}}),
                              pages({{0, 6}}), pages({{0, 2}, {3, 4}, {4, 6}}), pages({{0, 1}, {4, 6}})}) {
    CHECK(pin(memory.at(), other) == HP_E_EXISTS);
    CHECK(contains(hp_last_error(), hex(memory.at())));
  }
  CHECK(hp_register(memory.at(), 6 * page(), 0) == HP_E_EXISTS);
  CHECK(hp_register(memory.at(), 2 * page(), 0) == HP_E_EXISTS);
  CHECK(hps_calls("register") == 2);
  CHECK(same(segments(memory), ranges));
  CHECK(region(memory.at(), 1).references == 1);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("ranges and other registrations share the segments that are there") {
  const Fresh fresh("trace=1");
  const Memory memory(16 * page());
  REQUIRE(hp_register(memory.page_at(1), 3 * page(), 0) == HP_OK);
  REQUIRE(pin(memory.at(), pages({{0, 2}, {2, 6}})) == HP_OK);
  // Pages 1 to 3 keep the segment that they have.
  CHECK(same(segments(memory), pages({{0, 1}, {1, 4}, {4, 6}})));
  CHECK(region(memory.page_at(2), page()).references == 2);
  CHECK(region(memory.page_at(4), page()).references == 1);
  REQUIRE(hp_unregister(memory.page_at(1)) == HP_OK);
  CHECK(same(segments(memory), pages({{0, 1}, {1, 4}, {4, 6}})));
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("faulty ranges are named by their index, and nothing is done") {
  const Fresh fresh;
  const Memory memory(16 * page());
  const uint64_t p = page();
  struct Case {
    Ranges ranges;
    std::string what;
  };
  const std::vector<Case> cases = {
      {{{0, 0}}, "ranges[0]"},
      {{{0, p}, {p, p}}, "ranges[1]"},
      {{{0, p}, {2 * p, 3 * p}, {5 * p, 4 * p}}, "ranges[2]"},
      {{{0, p}, {p - 1, 2 * p}}, "ranges[1]"},
      {{{4 * p, 5 * p}, {0, p}}, "ranges[1]"},
      {{{0, p}, {p, 2 * p}, {p, 2 * p}}, "ranges[2]"},
      {{{0, UINT64_MAX}}, "ranges[0]"},
      {{{0, p}, {2 * p, UINT64_MAX - memory.address() + 1}}, "ranges[1]"},
      {{{0, p}, {2 * p, UINT64_MAX - memory.address() - p + 1}}, "ranges[1]"},
  };
  for (const Case &c : cases) {
    CAPTURE(c.what);
    CHECK(pin(memory.at(), c.ranges) == HP_E_INVALID);
    CHECK(contains(hp_last_error(), "hp_register_ranges"));
    CHECK(contains(hp_last_error(), c.what));
    CHECK(hp_last_native_error() == 0);
  }
  const hp_range one = {0, p};
  CHECK(hp_register_ranges(nullptr, &one, 1, 0) == HP_E_INVALID);
  CHECK(contains(hp_last_error(), "base is NULL"));
  CHECK(hp_register_ranges(memory.at(), nullptr, 1, 0) == HP_E_INVALID);
  CHECK(contains(hp_last_error(), "ranges is NULL"));
  CHECK(hp_register_ranges(memory.at(), &one, 0, 0) == HP_E_INVALID);
  CHECK(contains(hp_last_error(), "n is 0"));
  CHECK(hp_register_ranges(memory.at(), &one, 1, 0x10u) == HP_E_INVALID);
  CHECK(contains(hp_last_error(), "0x10"));
  CHECK(pin_calls() == 0);
  CHECK(hp_unregister(memory.at()) == HP_E_NOT_FOUND);
}

// ---- Refusals

TEST_CASE("a refusal in any of several ranges leaves nothing pinned, released last first") {
  const Fresh fresh("trace=1");
  const Memory memory(16 * page());
  REQUIRE(hp_register(memory.page_at(4), page(), 0) == HP_OK);  // in the middle of the second range
  const uint32_t flags = GENERATE(0u, HP_REGISTER_REQUIRED);
  const uint64_t good = GENERATE(range(0, 5));
  CAPTURE(flags, good);
  const Ranges ranges = pages({{0, 2}, {2, 6}, {8, 9}, {9, 10}});
  const size_t starts[] = {0, 2, 5, 8, 9};
  fail_next("register", 801, 1, good);
  CHECK(pin(memory.at(), ranges, flags) == (flags ? HP_E_REFUSED : HP_PAGEABLE));
  CHECK(hp_last_native_error() == 801);
  CHECK(same(segments(memory), pages({{4, 5}})));
  CHECK(region(memory.page_at(4), 1).references == 1);
  const auto released = traced(is_unregister);
  REQUIRE(released.size() == good);
  for (size_t i = 0; i < good; ++i) CHECK(released[i].ptr == memory.page_at(starts[good - 1 - i]));
  for (size_t i : {0, 2, 5, 8, 9}) CHECK(hp_query(memory.page_at(i), 1, nullptr) == HP_PAGEABLE);
  if (!flags) CHECK(stats().pageable_bytes == 10 * page());
  REQUIRE(pin(memory.at(), ranges) == HP_OK);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
  REQUIRE(hp_unregister(memory.page_at(4)) == HP_OK);
}

TEST_CASE("every segment of a roll-back is tried, and what is stuck is tried again") {
  const Fresh fresh("trace=1");
  const Memory memory(16 * page());
  const Ranges ranges = pages({{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}});
  fail_next("register", 801, 1, 4);
  fail_next("unregister", 1);        // the last of the four
  fail_next("unregister", 1, 1, 2);  // and the second
  CHECK(pin(memory.at(), ranges) == HP_E_STUCK);
  CHECK(contains(hp_last_error(), "do not unmap"));
  CHECK(same(segments(memory), pages({{2, 3}, {6, 7}})));
  CHECK(stats().stuck_segments == 2);
  CHECK(traced(is_unregister).size() == 4);
  for (size_t i : {2, 6}) CHECK(region(memory.page_at(i), page()).stuck == 1);
  for (size_t i : {0, 4, 8}) CHECK(hp_query(memory.page_at(i), 1, nullptr) == HP_PAGEABLE);
  fail_next("unregister", 1);
  CHECK(hp_unregister(memory.at()) == HP_E_STUCK);
  CHECK(same(segments(memory), pages({{6, 7}})));
  CHECK(hp_unregister(memory.at()) == HP_OK);
  CHECK(hp_unregister(memory.at()) == HP_E_NOT_FOUND);
  CHECK(traced(is_unregister).size() == 7);
}

TEST_CASE("what a refusal says", "[large]") {
  const Fresh fresh;
  const Memory memory(600 * kGiB);
  // The third segment, as small as it is made, and then no more.
  const int code = GENERATE(1, 2);
  fail_next("register", code, 1000, 2);
  CHECK(pin(memory.at(), {{0, 64 * kGiB}, {64 * kGiB, 128 * kGiB}, {128 * kGiB, 192 * kGiB}}) == HP_E_REFUSED);
  CHECK(hp_last_native_error() == code);
  const std::string said = hp_last_error();
  CAPTURE(said);
  CHECK(contains(said, register_name()));
  CHECK(contains(said, hex(memory.at(128 * kGiB))));
  CHECK(contains(said, std::to_string(256 << 20) + " bytes"));
  CHECK(contains(said, "offset " + std::to_string(128 * kGiB)));
  CHECK(contains(said, std::to_string(code) + (is_hip()           ? (code == 1 ? " hipErrorInvalidValue" : " hipErrorOutOfMemory")
                                               : is_driver_only() ? (code == 1 ? " CUDA_ERROR_INVALID_VALUE" : " CUDA_ERROR_OUT_OF_MEMORY")
                                                                  : (code == 1 ? " cudaErrorInvalidValue" : " cudaErrorMemoryAllocation"))));
  CHECK(contains(said, runtime_file()));
  CHECK(contains(said, "driver " + std::to_string(backend().driver_version)));
  CHECK(contains(said, "kernel "));
}

TEST_CASE("no driver is called for ranges of which one is not mapped", "[large]") {
  const Fresh fresh;
  const Memory memory(10 * kGiB);
  REQUIRE(munmap(memory.at(9 * kGiB + kGiB / 2), page()) == 0);
  std::vector<hp_range> ranges;
  const bool touching = GENERATE(true, false);
  for (size_t i = 0; i < 10; ++i) ranges.push_back({i * kGiB, (i + 1) * kGiB - (touching ? 0 : page())});
  CHECK(pin(memory.at(), ranges) == HP_E_REFUSED);
  CHECK(contains(hp_last_error(), "not all"));
  CHECK(hps_calls("register") == 0);
  CHECK(hp_unregister(memory.at()) == HP_E_NOT_FOUND);
}

TEST_CASE("the size that a driver takes is found once for all segments", "[large]") {
  const char *limit = GENERATE("max_pin=2G", "max_pin=256M", "max_call=3G");
  const Fresh fresh(std::string(limit) + ",trace=1");
  const Memory memory(600 * kGiB);
  CAPTURE(limit);
  REQUIRE(hp_register(memory.at(), memory.size(), HP_REGISTER_REQUIRED) == HP_OK);
  check_tiles(memory, {0, memory.size()}, 3 * kGiB);
  uint64_t refused = 0;
  for (const hps_call &call : traced(is_register)) refused += call.code != 0;
  CHECK(refused < 12);
  CHECK(hps_live_registrations() < 3000);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("refusals are answered with half the size, twelve times in all at most", "[large]") {
  const Fresh fresh("trace=1");
  uint64_t size = std::min<uint64_t>(backend().max_segment, 16384 * kGiB);
  const Memory memory(size);
  fail_next("register", 2, 1000);
  CHECK(hp_register(memory.at(), memory.size(), HP_REGISTER_REQUIRED) == HP_E_REFUSED);
  const auto made = traced(is_register);
  // From 64 GiB to 256 MiB it is nine times; from 16 TiB on, twelve.
  CHECK(made.size() == (size > 512 * kGiB ? 12 : 9));
  for (const hps_call &call : made) {
    CHECK(std::max<uint64_t>(call.length, size) - std::min<uint64_t>(call.length, size) < 2 << 20);  // cut between huge pages
    size /= 2;
  }
  CHECK(hps_live_registrations() == 0);
}

TEST_CASE("a refusal of what is small already is final", "[large]") {
  const Fresh fresh("trace=1");
  const Memory memory(40 * kGiB);
  fail_next("register", 2, 1, 1);
  CHECK(pin(memory.at(), {{0, kGiB / 4}, {kGiB, kGiB + kGiB / 4}, {2 * kGiB, 3 * kGiB}}) == HP_E_REFUSED);
  CHECK(traced(is_register).size() == 2);
}

TEST_CASE("refusals that pass by themselves are survived", "[large]") {
  const Fresh fresh;
  const Memory memory(64 * kGiB);
  const int code = GENERATE(1, 2);
  const uint64_t refusals = GENERATE(1, 3, 8);
  CAPTURE(code, refusals);
  fail_next("register", code, refusals);
  REQUIRE(hp_register(memory.at(), memory.size(), HP_REGISTER_REQUIRED) == HP_OK);
  CHECK(hps_pinned(memory.at(), memory.size()) == HPS_ALL);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

// ---- Copies

namespace {

std::vector<hp_copy> split(const std::vector<hp_copy> &in) {
  size_t count = 0;
  REQUIRE(hp_split_copies(in.data(), in.size(), nullptr, 0, &count) == HP_OK);
  std::vector<hp_copy> out(count);
  size_t again = 0;
  REQUIRE(hp_split_copies(in.data(), in.size(), out.data(), out.size(), &again) == HP_OK);
  REQUIRE(again == count);
  return out;
}

hp_copy copy(const Memory &memory, uint64_t offset, uint64_t bytes) {
  return {memory.at(offset), reinterpret_cast<void *>(uintptr_t{0x1000000} + offset), bytes};
}

// Which segment a byte lies in; 0 for none.
uint64_t segment_of(const void *ptr) {
  hp_region r{};
  r.struct_size = sizeof(r);
  return hp_query(ptr, 1, &r) == HP_OK ? r.start : 0;
}

}  // namespace

TEST_CASE("a copy is cut at each border of a segment") {
  const Fresh fresh;
  const Memory memory(16 * page());
  const uint64_t p = page();
  REQUIRE(pin(memory.at(), pages({{2, 4}, {4, 5}, {8, 10}})) == HP_OK);
  const auto out = split({copy(memory, p, 10 * p), copy(memory, 2 * p + 5, p), copy(memory, 0, 0)});
  const hp_range expected[] = {{p, 2 * p}, {2 * p, 4 * p}, {4 * p, 5 * p}, {5 * p, 8 * p}, {8 * p, 10 * p}, {10 * p, 11 * p},
                               {2 * p + 5, 3 * p + 5}, {0, 0}};
  REQUIRE(out.size() == std::size(expected));
  for (size_t i = 0; i < out.size(); ++i) {
    CHECK(out[i].host == memory.at(expected[i].start));
    CHECK(out[i].other == reinterpret_cast<void *>(uintptr_t{0x1000000} + expected[i].start));
    CHECK(out[i].bytes == expected[i].end - expected[i].start);
  }
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
  CHECK(split({copy(memory, p, 10 * p)}).size() == 1);
}

TEST_CASE("no piece of a copy crosses a border, and no cut is made elsewhere") {
  const Fresh fresh("maps=0");
  const Memory memory(64 * page());
  std::mt19937 random(7);
  std::vector<void *> bases;
  for (int i = 0; i < 12; ++i) {
    void *base = memory.at(random() % (60 * page()));
    if (hp_register(base, 1 + random() % (4 * page()), HP_REGISTER_REQUIRED) == HP_OK) bases.push_back(base);
  }
  for (int i = 0; i < 300; ++i) {
    const uint64_t offset = random() % (60 * page());
    const uint64_t bytes = 1 + random() % (memory.size() - offset);
    const hp_copy whole = copy(memory, offset, bytes);
    uint64_t done = 0;
    uint64_t before = UINT64_MAX;
    for (const hp_copy &piece : split({whole})) {
      CHECK(piece.host == memory.at(offset + done));
      CHECK(piece.other == static_cast<char *>(whole.other) + done);
      const uint64_t segment = segment_of(piece.host);
      CHECK(segment != before);
      // It is one segment from its first byte to its last, and on every page between.
      for (uint64_t at = 0; at < piece.bytes; at += page())
        CHECK(segment_of(static_cast<const char *>(piece.host) + at) == segment);
      CHECK(segment_of(static_cast<const char *>(piece.host) + piece.bytes - 1) == segment);
      before = segment;
      done += piece.bytes;
    }
    CHECK(done == bytes);
  }
  for (void *base : bases) CHECK(hp_unregister(base) == HP_OK);
}

TEST_CASE("with the ranges of hp_split_ranges no copy of a block is cut") {
  const Fresh fresh;
  const uint64_t block = 3 * page() / 2;
  const std::vector<uint64_t> tensors = {block * 8, block * 8, block * 8};
  const Memory memory(40 * page());
  size_t n = 0;
  REQUIRE(hp_split_ranges(tensors.data(), tensors.size(), 8, 36 * page(), 7 * page(), 0, nullptr, 0, &n) == HP_OK);
  Ranges ranges(n);
  REQUIRE(hp_split_ranges(tensors.data(), tensors.size(), 8, 36 * page(), 7 * page(), 0, ranges.data(), n, &n) == HP_OK);
  REQUIRE(n > 4);
  REQUIRE(pin(memory.at(), ranges) == HP_OK);
  if (backend().max_segment >= 7 * page())
    for (uint64_t at = 0; at < 24 * block; at += block) {
      CHECK(split({copy(memory, at, block)}).size() == 1);
      CHECK(region(memory.at(at), block).one_segment == 1);
    }
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("room for too few copies, and faulty arguments") {
  const Fresh fresh;
  const Memory memory(8 * page());
  REQUIRE(pin(memory.at(), pages({{0, 1}, {1, 2}})) == HP_OK);
  const hp_copy in[] = {copy(memory, 0, 4 * page()), copy(memory, 5 * page(), page())};
  hp_copy out[4] = {};
  size_t count = 0;
  CHECK(hp_split_copies(in, 2, out, 3, &count) == HP_E_TOO_SMALL);
  CHECK(count == 4);
  CHECK(out[0].bytes == 0);
  CHECK(hp_split_copies(in, 2, out, 4, &count) == HP_OK);
  CHECK(hp_split_copies(nullptr, 0, out, 4, &count) == HP_OK);
  CHECK(count == 0);
  CHECK(hp_split_copies(nullptr, 1, out, 4, &count) == HP_E_INVALID);
  CHECK(hp_split_copies(in, 2, out, 4, nullptr) == HP_E_INVALID);
  CHECK(hp_split_copies(in, 2, nullptr, 4, &count) == HP_E_INVALID);
  const hp_copy wrapping[] = {in[0], {memory.at(), nullptr, UINT64_MAX}};
  CHECK(hp_split_copies(wrapping, 2, out, 4, &count) == HP_E_INVALID);
  CHECK(contains(hp_last_error(), "copy 1"));
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

// ---- Much memory

TEST_CASE("600 GiB are pinned in whole pages without a gap, and released one by one", "[large]") {
  const Fresh fresh("trace=1");
  const Memory memory(600 * kGiB);
  const uint64_t limit = backend().max_segment;
  REQUIRE(hp_register(memory.at(3), memory.size() - 5, HP_REGISTER_REQUIRED) == HP_OK);
  check_tiles(memory, {0, memory.size()}, limit);
  const size_t n = hps_live_registrations();
  CHECK(n >= memory.size() / limit);
  for (const hps_call &call : traced(is_register)) CHECK(call.code == 0);
  REQUIRE(hp_unregister(memory.at(3)) == HP_OK);
  const auto released = traced(is_unregister);
  CHECK(released.size() == n);
  for (size_t i = 1; i < released.size(); ++i) CHECK(released[i].ptr < released[i - 1].ptr);
}

// What the table says and what the driver has, page by page; counted up, because Catch is slow.
TEST_CASE("600 GiB with segments that fail at random: nothing leaks and nothing is released twice", "[large]") {
  const Fresh fresh;
  const Memory memory(600 * kGiB);
  unsigned pinned = 0, refused = 0, stuck = 0, wrong = 0;
  const auto agree = [&] {
    const uint64_t bytes = hps_pinned_pages(nullptr, 0) * page();
    wrong += stats().pinned_bytes != bytes;
    for (const hps_registration &r : pinned_by_driver()) {
      hp_region out{};
      out.struct_size = sizeof(out);
      wrong += hp_query(r.ptr, r.length, &out) != HP_OK || out.start != reinterpret_cast<uintptr_t>(r.ptr) ||
               out.end - out.start != r.length;
    }
    return bytes;
  };
  for (int seed = 1; seed <= 10000; ++seed) {
    Fresh::renew_driver();
    // Most refusals are final; some are answered with smaller segments.
    const char *refusal = seed % 64 ? "0.05:801" : "0.02:2";
    hps_script(("maps=0,trace=1,seed=" + std::to_string(seed) + ",random=register:" + refusal + ",random=unregister:0.1:304").c_str());
    int32_t status = hp_register(memory.at(), memory.size(), HP_REGISTER_REQUIRED);
    pinned += status == HP_OK;
    refused += status == HP_E_REFUSED;
    stuck += status == HP_E_STUCK;
    wrong += status != HP_OK && status != HP_E_REFUSED && status != HP_E_STUCK;
    const uint64_t bytes = agree();
    wrong += status == HP_OK && bytes != memory.size();
    wrong += status == HP_E_REFUSED && bytes != 0;
    wrong += status == HP_E_STUCK && bytes == 0;
    wrong += stats().registrations != (status == HP_OK);
    if (status != HP_E_REFUSED)
      while ((status = hp_unregister(memory.at())) == HP_E_STUCK) wrong += agree() == 0;
    wrong += status != (status == HP_E_REFUSED ? HP_E_REFUSED : HP_OK);
    wrong += agree() != 0 || stats().segments != 0 || stats().stuck_segments != 0;
    // Any other code would be a release too many.
    for (const hps_call &call : trace()) wrong += is_unregister(call) && call.code != 0 && call.code != 304;
  }
  CHECK(wrong == 0);
  CHECK(pinned > 1000);
  CHECK(refused > 1000);
  CHECK(stuck > 100);
}
