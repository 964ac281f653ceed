// Splitting of arbitrary inputs: small ones against enumeration, the same ones scaled up to the end of 64 bits, and raw
// 64-bit values against what must hold for every result.
#include "../unit/split_oracle.h"
#include "split.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using split_oracle::Answer;
using split_oracle::Input;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

namespace {

constexpr size_t most_ranges = 4096;

class Reader {
public:
  Reader(const uint8_t *data, size_t size) : data_(data), left_(size) {}

  size_t left() const { return left_; }

  // The next bytes as a number; 0 when there are none.
  template <class T>
  uint64_t take() {
    T value = 0;
    const size_t bytes = std::min(sizeof value, left_);
    if (bytes != 0) std::memcpy(&value, data_, bytes);
    data_ += bytes;
    left_ -= bytes;
    return value;
  }

private:
  const uint8_t *data_;
  size_t left_;
};

struct Result {
  int32_t status;
  size_t count;
  std::vector<hp_range> ranges;
  std::array<char, 512> message;
};

void expect(bool holds, const char *what, const Input &in, const Result &result) {
  if (holds) return;
  std::fprintf(stderr, "%s does not hold: total %ju, chunk %ju, page %ju, %ju blocks, tensors", what,
               uintmax_t{in.total_size}, uintmax_t{in.max_chunk_bytes}, uintmax_t{in.page_size},
               uintmax_t{in.num_blocks});
  for (const uint64_t tensor_size : in.tensor_sizes) std::fprintf(stderr, " %ju", uintmax_t{tensor_size});
  std::fprintf(stderr, "\nstatus %d, count %zu, message \"%s\"\n", result.status, result.count, result.message.data());
  std::abort();
}

Result call(const Input &in, size_t capacity) {
  Result result{0, SIZE_MAX, std::vector<hp_range>(capacity, {1, 0}), {}};
  result.status = hp::split_ranges(in.tensor_sizes.data(), in.tensor_sizes.size(), in.num_blocks, in.total_size,
                                   in.max_chunk_bytes, in.page_size, capacity != 0 ? result.ranges.data() : nullptr,
                                   capacity, &result.count, result.message.data(), result.message.size());
  return result;
}

bool message_has(const Result &result, const char *before, uint64_t number) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%s%ju", before, uintmax_t{number});
  return std::strstr(result.message.data(), text.data()) != nullptr;
}

void compare(const Input &in, const Answer &expected) {
  const Result counted = call(in, 0);
  expect(counted.status == expected.status, "the status", in, counted);
  if (expected.status == HP_E_NO_BOUNDARY) {
    expect(message_has(counted, "after offset ", expected.offset), "the offset", in, counted);
    expect(message_has(counted, "at offset ", expected.next_cut), "the next cut", in, counted);
  }
  if (expected.status != HP_OK) {
    expect(counted.count == SIZE_MAX && counted.message[0] != 0, "count left alone, with a message", in, counted);
    return;
  }
  expect(counted.count == expected.ranges.size(), "the count", in, counted);
  if (counted.count > 1) {
    const Result short_by_one = call(in, counted.count - 1);
    expect(short_by_one.status == HP_E_TOO_SMALL && short_by_one.count == counted.count, "too small", in, short_by_one);
    for (const hp_range &range : short_by_one.ranges)
      expect(range.start == 1 && range.end == 0, "ranges left alone", in, short_by_one);
  }
  const Result result = call(in, counted.count);
  expect(result.status == HP_OK && result.count == counted.count, "the same count again", in, result);
  for (size_t i = 0; i < result.count; ++i)
    expect(result.ranges[i].start == expected.ranges[i].start && result.ranges[i].end == expected.ranges[i].end,
           "the cut", in, result);
}

// What can be said of a result without knowing it.
void check_invariants(const Input &in) {
  const Result counted = call(in, 0);
  const bool valid = split_oracle::arguments_are_valid(in);
  expect((counted.status != HP_E_INVALID) == valid, "the validity", in, counted);
  if (counted.status != HP_OK) {
    expect(counted.count == SIZE_MAX && counted.message[0] != 0, "count left alone, with a message", in, counted);
    return;
  }
  const uint64_t fewest = in.total_size / in.max_chunk_bytes + (in.total_size % in.max_chunk_bytes != 0);
  expect(counted.count >= fewest, "enough ranges", in, counted);
  if (counted.count > most_ranges) {
    expect(call(in, 1).status == HP_E_TOO_SMALL, "too small", in, counted);
    return;
  }
  const Result result = call(in, counted.count);
  uint64_t position = 0;
  for (const hp_range &range : result.ranges) {
    expect(range.start == position && range.end >= range.start, "tiling", in, result);
    expect(range.end - range.start <= in.max_chunk_bytes, "the chunk limit", in, result);
    expect(split_oracle::is_legal(in, range.end), "legality of a cut", in, result);
    expect(range.end > range.start || in.total_size == 0, "no empty range", in, result);
    position = range.end;
  }
  expect(position == in.total_size, "the end", in, result);
}

Input small(Reader &reader) {
  const uint64_t shape = reader.take<uint8_t>();
  Input in{{}, 1 + reader.take<uint8_t>() % 16, 0, reader.take<uint16_t>() % 4096, 1 + reader.take<uint8_t>() % 64};
  uint64_t sum = 0;
  while (reader.left() != 0 && in.tensor_sizes.size() < 24) {
    in.tensor_sizes.push_back(reader.take<uint8_t>() % 100 * in.num_blocks);
    sum += in.tensor_sizes.back();
  }
  in.total_size = (sum + in.page_size - 1) / in.page_size * in.page_size;
  // Now and then arguments that must be refused, else some padding.
  if (shape % 16 == 0)
    in.total_size = shape * 8;
  else
    in.total_size += shape / 16 * in.page_size;
  if (shape % 16 == 1 && !in.tensor_sizes.empty()) in.tensor_sizes.back() += shape / 16;
  return in;
}

void scale(Input &in, Answer &answer, uint64_t factor) {
  for (uint64_t &tensor_size : in.tensor_sizes) tensor_size *= factor;
  for (uint64_t *length : {&in.total_size, &in.max_chunk_bytes, &in.page_size, &answer.offset, &answer.next_cut})
    *length *= factor;
  for (hp_range &range : answer.ranges) range = {range.start * factor, range.end * factor};
}

Input raw(Reader &reader) {
  const uint64_t shape = reader.take<uint8_t>();
  Input in{{}, reader.take<uint64_t>(), reader.take<uint64_t>(), reader.take<uint64_t>(), reader.take<uint64_t>()};
  in.max_chunk_bytes = std::max(in.max_chunk_bytes, uint64_t{1});
  in.page_size = std::max(in.page_size, uint64_t{1});
  while (reader.left() != 0 && in.tensor_sizes.size() < 64) in.tensor_sizes.push_back(reader.take<uint64_t>());
  if (shape & 1) in.total_size -= in.total_size % in.page_size;
  if (shape & 2 && in.num_blocks != 0)
    for (uint64_t &tensor_size : in.tensor_sizes) tensor_size -= tensor_size % in.num_blocks;
  if (shape & 4) in.max_chunk_bytes = std::max(in.max_chunk_bytes, in.page_size);
  return in;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Reader reader(data, size);
  const uint64_t mode = reader.take<uint8_t>() % 3;
  if (mode == 2) {
    const Input in = raw(reader);
    check_invariants(in);
    const auto expected = split_oracle::arguments_are_valid(in) ? split_oracle::split(in) : std::nullopt;
    if (expected && expected->ranges.size() <= most_ranges) compare(in, *expected);
    return 0;
  }
  const uint64_t wish = mode == 1 ? reader.take<uint64_t>() : 1;
  Input in = small(reader);
  Answer expected = *split_oracle::split(in);
  uint64_t longest = std::max({in.total_size, in.max_chunk_bytes, in.page_size});
  for (const uint64_t tensor_size : in.tensor_sizes) longest = std::max(longest, tensor_size);
  // A size that is no multiple of num_blocks may become one when scaled.
  if (expected.status != HP_E_INVALID) scale(in, expected, 1 + (wish - 1) % (UINT64_MAX / longest));
  compare(in, expected);
  return 0;
}
