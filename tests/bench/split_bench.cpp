// hp_split_ranges: time for each range of a large pool, and its growth with tensors and with ranges. Prints JSON;
// split_yardstick.py runs it and puts plain Python next to it.
#include "hostpin.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace {

constexpr uint64_t page_size = 4096;
constexpr uint64_t pool_bytes = uint64_t{4} << 40;
constexpr uint64_t chunk_bytes = uint64_t{256} << 20;

struct Pool {
  std::vector<uint64_t> tensor_sizes;
  uint64_t num_blocks;
  uint64_t total_size;
};

// About 4 TiB of tensors whose block sizes are different multiples of 512 bytes.
Pool make_pool(size_t tensors, uint64_t num_blocks) {
  std::mt19937_64 random(1);
  const uint64_t mean = pool_bytes / tensors / num_blocks / 512;
  Pool pool{{}, num_blocks, 0};
  for (size_t i = 0; i < tensors; ++i) {
    pool.tensor_sizes.push_back((mean / 2 + random() % (mean + 1)) * 512 * num_blocks);
    pool.total_size += pool.tensor_sizes.back();
  }
  return pool;
}

struct Measurement {
  size_t tensors;
  uint64_t max_chunk_bytes;
  size_t ranges;
  double nanoseconds;
  uint64_t checksum;
};

size_t split(const Pool &pool, uint64_t chunk, std::vector<hp_range> &ranges) {
  size_t count = 0;
  const int32_t status =
      hp_split_ranges(pool.tensor_sizes.data(), pool.tensor_sizes.size(), pool.num_blocks, pool.total_size, chunk,
                      page_size, ranges.empty() ? nullptr : ranges.data(), ranges.size(), &count);
  if (status != HP_OK) {
    std::fprintf(stderr, "hp_split_ranges: %s\n", hp_last_error());
    std::exit(1);
  }
  return count;
}

Measurement measure(const Pool &pool, uint64_t chunk) {
  std::vector<hp_range> ranges;
  ranges.resize(split(pool, chunk, ranges));
  std::vector<double> times;
  for (int sample = 0; sample < 31; ++sample) {
    constexpr int calls = 4;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) split(pool, chunk, ranges);
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
    times.push_back(taken.count() / calls);
  }
  std::nth_element(times.begin(), times.begin() + 15, times.end());
  uint64_t checksum = 0;
  for (size_t i = 0; i < ranges.size(); ++i) checksum += (i + 1) * ranges[i].end;
  return {pool.tensor_sizes.size(), chunk, ranges.size(), times[15], checksum};
}

void print(const Measurement &m, const char *separator) {
  std::printf("    {\"tensors\": %zu, \"max_chunk_bytes\": %" PRIu64
              ", \"ranges\": %zu, \"ns\": %.0f, "
              "\"ns_per_range\": %.3f, \"checksum\": %" PRIu64 "}%s\n",
              m.tensors, m.max_chunk_bytes, m.ranges, m.nanoseconds, m.nanoseconds / static_cast<double>(m.ranges),
              m.checksum, separator);
}

void print_growth(const char *name, const Measurement &from, const Measurement &to, const char *separator) {
  const auto ratio = [](size_t a, size_t b) { return static_cast<double>(b) / static_cast<double>(a); };
  std::printf("    \"%s\": {\"tensors\": %.4g, \"ranges\": %.4g, \"time\": %.4g}%s\n", name,
              ratio(from.tensors, to.tensors), ratio(from.ranges, to.ranges), to.nanoseconds / from.nanoseconds,
              separator);
}

}  // namespace

int main() {
  const Pool few = make_pool(96, 1 << 18), many = make_pool(9600, 1 << 13);
  const Measurement pool = measure(few, chunk_bytes);
  const Measurement more_tensors = measure(many, chunk_bytes);
  const Measurement thousand = measure(few, pool_bytes / 1'000);
  const Measurement million = measure(few, pool_bytes / 1'000'000);

  std::printf("{\n  \"pool\": {\"num_blocks\": %" PRIu64 ", \"page_size\": %" PRIu64 ", \"total_size\": %" PRIu64
              ", \"tensor_sizes\": [",
              few.num_blocks, page_size, few.total_size);
  for (size_t i = 0; i < few.tensor_sizes.size(); ++i)
    std::printf("%s%" PRIu64, i != 0 ? ", " : "", few.tensor_sizes[i]);
  std::printf("]},\n  \"measured\": [\n");
  print(pool, ",");
  print(more_tensors, ",");
  print(thousand, ",");
  print(million, "");
  std::printf("  ],\n  \"growth\": {\n");
  print_growth("more tensors", pool, more_tensors, ",");
  print_growth("more ranges", thousand, million, "");
  std::printf("  }\n}\n");
}
