#include "catch.h"
#include "hostpin.h"
#include "split_oracle.h"

#include <nlohmann/json.hpp>

#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <unistd.h>

using split_oracle::Answer;
using split_oracle::Input;

static bool operator==(const hp_range &a, const hp_range &b) { return a.start == b.start && a.end == b.end; }

namespace {

constexpr uint64_t largest = std::numeric_limits<uint64_t>::max();
constexpr hp_range untouched{largest, 1};

int32_t call(const Input &in, hp_range *ranges, size_t capacity, size_t *num_ranges) {
  return hp_split_ranges(in.tensor_sizes.data(), in.tensor_sizes.size(), in.num_blocks, in.total_size,
                         in.max_chunk_bytes, in.page_size, ranges, capacity, num_ranges);
}

bool last_error_has(const std::string &text) { return std::string(hp_last_error()).find(text) != std::string::npos; }

std::string describe(const Input &in) {
  return nlohmann::json{{"tensor_sizes", in.tensor_sizes},
                        {"num_blocks", in.num_blocks},
                        {"total_size", in.total_size},
                        {"max_chunk_bytes", in.max_chunk_bytes},
                        {"page_size", in.page_size}}
      .dump();
}

// The whole behaviour for one input: count only, one range too few, exactly enough, and outputs left alone on failure.
void check_against(const Input &in, const Answer &expected) {
  INFO(describe(in));
  size_t count = 77;
  const int32_t status = call(in, nullptr, 0, &count);
  REQUIRE(status == expected.status);
  if (status != HP_OK) {
    CHECK(count == 77);
    std::vector<hp_range> ranges(64, untouched);
    CHECK(call(in, ranges.data(), ranges.size(), &count) == status);
    CHECK(count == 77);
    CHECK(std::all_of(ranges.begin(), ranges.end(), [](const hp_range &range) { return range == untouched; }));
    if (status == HP_E_NO_BOUNDARY) {
      INFO(hp_last_error());
      CHECK(last_error_has("after offset " + std::to_string(expected.offset) + ";"));
      CHECK(last_error_has("at offset " + std::to_string(expected.next_cut) + ","));
    }
    return;
  }
  REQUIRE(count == expected.ranges.size());
  std::vector<hp_range> ranges(count + 1, untouched);
  size_t needed = 0;
  CHECK(call(in, ranges.data(), count - 1, &needed) == HP_E_TOO_SMALL);
  CHECK(needed == count);
  CHECK(std::all_of(ranges.begin(), ranges.end(), [](const hp_range &range) { return range == untouched; }));
  count = 0;
  CHECK(call(in, ranges.data(), needed, &count) == HP_OK);
  CHECK(count == needed);
  CHECK(ranges.back() == untouched);
  ranges.pop_back();
  CHECK(std::equal(ranges.begin(), ranges.end(), expected.ranges.begin(), expected.ranges.end()));
}

uint64_t random_below(std::mt19937_64 &random, uint64_t bound) { return random() % bound; }

// At most a few hundred pages. Most tensors of an input have blocks that reach a page together, now and then one has
// not.
Input random_small(std::mt19937_64 &random) {
  static constexpr uint64_t pages[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 30, 31, 64, 97};
  Input in{{}, 1 + random_below(random, 12), 0, 0, pages[random_below(random, std::size(pages))]};
  const uint64_t unit = 1 + (in.page_size - 1) / (1 + random_below(random, 4));
  uint64_t sum = 0;
  for (uint64_t n = random_below(random, 12); n > 0; --n) {
    const bool odd = random_below(random, 12) == 0;
    const uint64_t block = odd ? random_below(random, 2 * in.page_size) : unit * random_below(random, 4);
    in.tensor_sizes.push_back(block * in.num_blocks);
    sum += block * in.num_blocks;
  }
  in.total_size = (sum + in.page_size - 1) / in.page_size * in.page_size + in.page_size * random_below(random, 4);
  in.max_chunk_bytes = in.page_size + random_below(random, in.page_size * (1 + random_below(random, 40)));
  return in;
}

// Every length times factor: the same cuts times factor.
Input scaled(Input in, uint64_t factor) {
  for (uint64_t &size : in.tensor_sizes) size *= factor;
  in.total_size *= factor;
  in.max_chunk_bytes *= factor;
  in.page_size *= factor;
  return in;
}

Answer scaled(Answer answer, uint64_t factor) {
  for (hp_range &range : answer.ranges) range = {range.start * factor, range.end * factor};
  answer.offset *= factor;
  answer.next_cut *= factor;
  return answer;
}

uint64_t multiply(uint64_t a, uint64_t b, uint64_t modulus) {
  uint64_t product = 0;
  for (; b != 0; b >>= 1, a = (a + a) % modulus) product = (product + (b & 1) * a) % modulus;
  return product;
}

uint64_t power(uint64_t base, uint64_t exponent, uint64_t modulus) {
  uint64_t result = 1;
  for (; exponent != 0; exponent >>= 1, base = multiply(base, base, modulus))
    if (exponent & 1) result = multiply(result, base, modulus);
  return result;
}

void check_by_enumeration(const Input &in) {
  const auto answer = split_oracle::split(in);
  INFO(describe(in));
  REQUIRE(answer);
  check_against(in, *answer);
}

}  // namespace

TEST_CASE("splitting: recorded inputs", "[split]") {
  static const std::map<std::string, std::pair<int32_t, std::string>> errors = {
      {"no_boundary", {HP_E_NO_BOUNDARY, "no legal cut"}},
      {"total_unaligned", {HP_E_INVALID, "is not a multiple of page_size"}},
      {"chunk_below_page", {HP_E_INVALID, "is below page_size"}},
      {"tensor_not_divisible", {HP_E_INVALID, "cannot be divided into num_blocks"}},
      {"tensors_exceed_total", {HP_E_INVALID, "ends beyond total_size"}},
  };
  std::ifstream file(TEST_DATA_DIR "/split_ranges.jsonl");
  size_t lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const auto record = nlohmann::json::parse(line);
    const Input in{record["tensor_sizes"], record["num_blocks"], record["total_size"], record["max_chunk_bytes"],
                   record["page_size"]};
    INFO("line " << lines + 1);
    if (record.contains("ranges")) {
      Answer answer;
      for (const auto &range : record["ranges"]) answer.ranges.push_back({range[0], range[1]});
      check_against(in, answer);
      continue;
    }
    const auto &[status, text] = errors.at(record["error"]);
    size_t count = 0;
    CHECK(call(in, nullptr, 0, &count) == status);
    CHECK(last_error_has(text));
  }
  CHECK(lines == 1500);
}

TEST_CASE("splitting: random inputs against enumeration", "[split]") {
  std::mt19937_64 random(20240517);
  size_t split = 0, refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const Input in = random_small(random);
    const auto answer = split_oracle::split(in);
    INFO(describe(in));
    REQUIRE(answer);
    check_against(in, *answer);
    split += answer->ranges.size() > 2;
    refused += answer->status == HP_E_NO_BOUNDARY;
  }
  // Both kinds must really have been seen.
  CHECK(split > 5'000);
  CHECK(refused > 5'000);
}

TEST_CASE("splitting: the same inputs near the end of 64 bits", "[split]") {
  std::mt19937_64 random(20240518);
  for (int i = 0; i < 10'000; ++i) {
    const Input in = random_small(random);
    const auto answer = split_oracle::split(in);
    REQUIRE(answer);
    const uint64_t factor = largest / std::max({in.total_size, in.max_chunk_bytes, uint64_t{1}});
    check_against(scaled(in, factor), scaled(*answer, factor));
  }
}

TEST_CASE("splitting: page sizes that share no factor with anything", "[split]") {
  constexpr uint64_t prime = 4'294'967'291;                      // below 2^32
  constexpr uint64_t large_prime = 18'446'744'073'709'551'557u;  // below 2^64
  constexpr uint64_t middle_prime = 1'000'000'000'000'000'003;

  SECTION("random blocks under large primes") {
    std::mt19937_64 random(20240519);
    for (int i = 0; i < 3'000; ++i) {
      Input in{{}, 1 + random_below(random, 20), 0, 0, random_below(random, 2) != 0 ? middle_prime : middle_prime / 7};
      in.total_size = in.page_size * (1 + random_below(random, largest / in.page_size));
      uint64_t left = in.total_size;
      for (uint64_t n = random_below(random, 5); n > 0; --n) {
        // Half of the blocks are pages or their multiples, so that there are cuts as well.
        uint64_t block = random_below(random, left / in.num_blocks + 1);
        if (random_below(random, 2) != 0) block -= block % in.page_size;
        in.tensor_sizes.push_back(block * in.num_blocks);
        left -= block * in.num_blocks;
      }
      in.max_chunk_bytes = in.page_size + random_below(random, largest - in.page_size);
      check_by_enumeration(in);
    }
  }
  SECTION("one cut among billions of blocks") {
    // Two tensors under pages of a prime above 2^32: the few blocks that end on a page are found here by Fermat's
    // theorem.
    constexpr uint64_t page = 8'589'934'583;
    std::mt19937_64 random(20240521);
    for (int i = 0; i < 2'000; ++i) {
      const uint64_t first_block = 1 + random_below(random, 1 << 28), block = 2 + random_below(random, 1 << 28);
      const uint64_t num_blocks = page + random_below(random, page);
      const uint64_t second = num_blocks * first_block, end = second + num_blocks * block;
      const uint64_t total = (end + page - 1) / page * page;
      std::vector<uint64_t> cuts{page * first_block};
      const uint64_t cut_block = multiply(page - second % page, power(block, page - 2, page), page);
      for (uint64_t k = cut_block; k <= num_blocks; k += page) cuts.push_back(second + k * block);
      if (total != cuts.back()) cuts.push_back(total);
      const Input in{{second, end - second}, num_blocks, total, page + random_below(random, total), page};
      check_against(in, split_oracle::split_at(in, cuts));
    }
  }
  SECTION("one page of all") { check_by_enumeration({{large_prime - 1}, 2, large_prime, large_prime, large_prime}); }
  SECTION("blocks and pages meet only at the end") {
    constexpr uint64_t block = 4'294'967'279;  // a prime as well
    constexpr uint64_t total = prime * block;  // their least common multiple
    check_against({{total}, prime, total, total, prime}, {HP_OK, {{0, total}}, 0, 0});
    check_against({{total}, prime, total, total - 1, prime}, {HP_E_NO_BOUNDARY, {}, 0, total});
  }
}

TEST_CASE("splitting: largest values", "[split]") {
  size_t count = 0;
  hp_range range{};
  SECTION("every byte a block, a page and a range") {
    const Input in{{largest}, largest, largest, 1, 1};
    CHECK(call(in, nullptr, 0, &count) == HP_OK);
    CHECK(count == largest);
    count = 0;
    CHECK(call(in, &range, 1, &count) == HP_E_TOO_SMALL);
    CHECK(count == largest);
  }
  SECTION("padding alone") {
    const Input in{{}, 0, largest, 2, 1};
    CHECK(call(in, nullptr, 0, &count) == HP_OK);
    CHECK(count == largest / 2 + 1);
  }
  SECTION("limits far beyond the total") {
    const Input in{{largest - 1}, 1, largest, largest, 1};
    CHECK(call(in, &range, 1, &count) == HP_OK);
    CHECK(range == hp_range{0, largest});
  }
  SECTION("the last range is one byte") {
    check_by_enumeration({{largest}, 3, largest, largest - 1, largest / 3});
    check_by_enumeration({{largest - 1, 1}, 1, largest, largest - 1, 1});
  }
  SECTION("a block of zero bytes for each of the most blocks") {
    const Input in{{0, 0}, largest, 8, 4, 4};
    CHECK(call(in, nullptr, 0, &count) == HP_OK);
    CHECK(count == 2);
  }
}

TEST_CASE("splitting: arguments are checked in the documented order", "[split]") {
  size_t count = 77;
  const auto fails_with = [&](const Input &in, const std::string &text) {
    INFO(describe(in));
    CHECK(call(in, nullptr, 0, &count) == HP_E_INVALID);
    INFO(hp_last_error());
    CHECK(last_error_has(text));
    CHECK(count == 77);
  };
  fails_with({{7, 100}, 2, 33, 7, 16}, "total_size 33 is not a multiple of page_size 16");
  fails_with({{7, 100}, 2, 32, 7, 16}, "max_chunk_bytes 7 is below page_size 16");
  fails_with({{100, 7}, 2, 32, 16, 16}, "tensor 1 of 7 bytes cannot be divided into num_blocks 2");
  fails_with({{8, 0, 100}, 2, 32, 16, 16}, "tensor 2 of 100 bytes at offset 8 ends beyond total_size 32");
  fails_with({{2, largest - 1}, 1, 32, 16, 16}, "tensor 1 of 18446744073709551614 bytes at offset 2");
  fails_with({{0}, 0, 32, 16, 16}, "tensor 0 of 0 bytes cannot be divided into num_blocks 0");
  fails_with({{largest}, 1, largest - 1, 1, 1}, "ends beyond total_size 18446744073709551614");
}

TEST_CASE("splitting: nothing to split", "[split]") {
  check_against({{}, 0, 0, 16, 16}, {HP_OK, {{0, 0}}, 0, 0});
  check_against({{0, 0}, 4, 0, 16, 16}, {HP_OK, {{0, 0}}, 0, 0});
}

TEST_CASE("splitting: an empty tensor constrains nothing", "[split]") {
  // Offset 16 is within the only real tensor's single block, and an empty tensor elsewhere opens nothing.
  check_against({{0, 32, 0}, 1, 32, 16, 16}, {HP_E_NO_BOUNDARY, {}, 0, 32});
  check_against({{8, 0, 8, 0}, 1, 48, 16, 16}, {HP_OK, {{0, 16}, {16, 32}, {32, 48}}, 0, 0});
}

TEST_CASE("splitting: everything in one chunk needs no cut", "[split]") {
  check_against({{48}, 1, 48, 48, 16}, {HP_OK, {{0, 48}}, 0, 0});
  check_against({{48}, 1, 48, 47, 16}, {HP_E_NO_BOUNDARY, {}, 0, 48});
}

TEST_CASE("splitting: defaults", "[split]") {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  constexpr uint64_t chunk = uint64_t{64} << 30;
  size_t count = 0;
  hp_range ranges[2]{};
  REQUIRE(hp_split_ranges(nullptr, 0, 0, chunk + page, 0, 0, ranges, 2, &count) == HP_OK);
  CHECK(count == 2);
  CHECK(ranges[0] == hp_range{0, chunk});
  CHECK(ranges[1] == hp_range{chunk, chunk + page});
  CHECK(hp_split_ranges(nullptr, 0, 0, page / 2, 0, 0, ranges, 2, &count) == HP_E_INVALID);
  CHECK(last_error_has("page_size " + std::to_string(page)));
}

TEST_CASE("splitting: pointers that must not be null", "[split]") {
  size_t count = 77;
  hp_range range = untouched;
  const uint64_t size = 16;
  CHECK(hp_split_ranges(nullptr, 1, 1, 16, 16, 16, &range, 1, &count) == HP_E_INVALID);
  CHECK(hp_split_ranges(&size, 1, 1, 16, 16, 16, nullptr, 1, &count) == HP_E_INVALID);
  CHECK(hp_split_ranges(&size, 1, 1, 16, 16, 16, &range, 1, nullptr) == HP_E_INVALID);
  CHECK(count == 77);
  CHECK(range == untouched);
  CHECK(hp_split_ranges(&size, 1, 1, 16, 16, 16, &range, 0, &count) == HP_E_TOO_SMALL);
  CHECK(count == 1);
}

// A walk that starts over for each range, or that goes block by block, would not end within hours.
TEST_CASE("splitting: cost does not multiply", "[split]") {
  SECTION("a million tensors in a million ranges") {
    const Input in{std::vector<uint64_t>(1'000'000, 4096), 1, uint64_t{1'000'000} * 4096, 4096, 4096};
    size_t count = 0;
    CHECK(call(in, nullptr, 0, &count) == HP_OK);
    CHECK(count == 1'000'000);
  }
  SECTION("more blocks than could be walked") {
    const Input in{{uint64_t{1} << 63}, uint64_t{1} << 60, uint64_t{1} << 63, (uint64_t{1} << 40) - 1, 4096};
    size_t count = 0;
    CHECK(call(in, nullptr, 0, &count) == HP_OK);
    CHECK(count == (uint64_t{1} << 63) / ((uint64_t{1} << 40) - 4096) + 1);
  }
}
