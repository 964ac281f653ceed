#include "catch.h"
#include "split.h"

#include <algorithm>
#include <array>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr uint64_t largest = std::numeric_limits<uint64_t>::max();

// Addresses from which another segment, or none, holds what follows; sorted.
using Borders = std::vector<uint64_t>;

uint64_t border_after(const void *context, uint64_t address) {
  const Borders &borders = *static_cast<const Borders *>(context);
  const auto after = std::upper_bound(borders.begin(), borders.end(), address);
  return after == borders.end() ? largest : *after;
}

hp::Copy copy(uint64_t host, uint64_t other, uint64_t bytes) {
  return {reinterpret_cast<const void *>(host), reinterpret_cast<void *>(other), bytes};
}

uint64_t host_of(const hp::Copy &c) { return reinterpret_cast<uint64_t>(c.host); }
uint64_t other_of(const hp::Copy &c) { return reinterpret_cast<uint64_t>(c.other); }

struct Result {
  int32_t status;
  size_t count = 77;
  std::vector<hp::Copy> copies;
  std::string message;
};

constexpr size_t no_array = largest;

Result split(const std::vector<hp::Copy> &in, const Borders &borders, size_t capacity) {
  Result result{};
  std::array<char, 256> message{};
  if (capacity != no_array) result.copies.assign(capacity + 1, copy(1, 2, 3));
  result.count = 77;
  result.status = hp::split_copies(in.data(), in.size(), capacity == no_array ? nullptr : result.copies.data(),
                                   capacity == no_array ? 0 : capacity, &result.count, {border_after, &borders},
                                   message.data(), message.size());
  result.message = message.data();
  return result;
}

bool is_untouched(const hp::Copy &c) { return host_of(c) == 1 && other_of(c) == 2 && c.bytes == 3; }

void check_pieces(const std::vector<hp::Copy> &in, const Borders &borders, const std::vector<hp::Copy> &expected) {
  const Result counted = split(in, borders, no_array);
  CHECK(counted.status == HP_OK);
  CHECK(counted.count == expected.size());
  const Result result = split(in, borders, expected.size());
  REQUIRE(result.status == HP_OK);
  REQUIRE(result.count == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(host_of(result.copies[i]) == host_of(expected[i]));
    CHECK(other_of(result.copies[i]) == other_of(expected[i]));
    CHECK(result.copies[i].bytes == expected[i].bytes);
  }
  CHECK(is_untouched(result.copies.back()));
}

}  // namespace

TEST_CASE("copies: cut where a segment ends or begins", "[split]") {
  const Borders borders{100, 200, 300};
  check_pieces({}, borders, {});
  check_pieces({copy(100, 5000, 100)}, borders, {copy(100, 5000, 100)});
  check_pieces({copy(120, 5000, 30)}, borders, {copy(120, 5000, 30)});
  check_pieces({copy(50, 5000, 60)}, borders, {copy(50, 5000, 50), copy(100, 5050, 10)});
  check_pieces({copy(199, 7, 102)}, borders, {copy(199, 7, 1), copy(200, 8, 100), copy(300, 108, 1)});
  check_pieces({copy(400, 7, 1000), copy(0, 0, 101)}, borders,
               {copy(400, 7, 1000), copy(0, 0, 100), copy(100, 100, 1)});
}

TEST_CASE("copies: one of zero bytes stays", "[split]") {
  check_pieces({copy(100, 9, 0), copy(0, 0, 0), copy(largest, largest, 0)}, {100},
               {copy(100, 9, 0), copy(0, 0, 0), copy(largest, largest, 0)});
}

TEST_CASE("copies: up to the last address", "[split]") {
  check_pieces({copy(largest - 10, 0, 10)}, {}, {copy(largest - 10, 0, 10)});
  check_pieces({copy(0, 0, largest)}, {largest - 1}, {copy(0, 0, largest - 1), copy(largest - 1, largest - 1, 1)});
}

TEST_CASE("copies: wrap-around is refused with nothing written", "[split]") {
  const auto bad = GENERATE(copy(largest - 10, 0, 11), copy(0, largest - 10, 11), copy(largest, largest, largest));
  const Result result = split({copy(0, 0, 500), bad}, {100}, 8);
  CHECK(result.status == HP_E_INVALID);
  CHECK(result.message.find("hp_split_copies: copy 1 of " + std::to_string(bad.bytes) + " bytes") == 0);
  CHECK(result.count == 77);
  CHECK(std::all_of(result.copies.begin(), result.copies.end(), is_untouched));
}

TEST_CASE("copies: too small an array gets the count and nothing else", "[split]") {
  const auto capacity = GENERATE(size_t{0}, size_t{1}, size_t{2});
  const Result result = split({copy(50, 0, 200)}, {100, 200}, capacity);
  CHECK(result.status == HP_E_TOO_SMALL);
  CHECK(result.count == 3);
  CHECK(result.message == "hp_split_copies: out has room for " + std::to_string(capacity) + " copies, 3 are needed");
  CHECK(std::all_of(result.copies.begin(), result.copies.end(), is_untouched));
}

TEST_CASE("copies: segments that come during the call cannot lead past the array", "[split]") {
  // No border at first, one after every byte from the second question on.
  struct Changing {
    mutable int questions = 0;
  } changing;
  const auto after = [](const void *context, uint64_t address) {
    return ++static_cast<const Changing *>(context)->questions == 1 ? largest : address + 1;
  };
  const hp::Copy in = copy(100, 0, 10);
  std::array<hp::Copy, 4> out;
  out.fill(copy(1, 2, 3));
  std::array<char, 256> message{};
  size_t count = 77;
  CHECK(hp::split_copies(&in, 1, out.data(), 3, &count, {after, &changing}, message.data(), message.size()) ==
        HP_E_TOO_SMALL);
  CHECK(count == 10);
  CHECK(is_untouched(out[3]));
}

TEST_CASE("copies: random lists, byte by byte", "[split]") {
  std::mt19937_64 random(20240520);
  for (int i = 0; i < 2'000; ++i) {
    Borders borders(random() % 12);
    for (uint64_t &border : borders) border = random() % 400;
    std::sort(borders.begin(), borders.end());
    std::vector<hp::Copy> in(random() % 6), expected;
    for (hp::Copy &c : in) c = copy(random() % 400, random() % 4000, random() % 100);
    for (const hp::Copy &c : in) {
      expected.push_back(copy(host_of(c), other_of(c), 0));
      for (uint64_t byte = 0; byte < c.bytes; ++byte) {
        const bool starts_at_border = std::binary_search(borders.begin(), borders.end(), host_of(c) + byte);
        if (byte != 0 && starts_at_border) expected.push_back(copy(host_of(c) + byte, other_of(c) + byte, 0));
        ++expected.back().bytes;
      }
    }
    check_pieces(in, borders, expected);
  }
}
