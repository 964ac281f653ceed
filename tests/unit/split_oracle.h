// The splitting rule by enumeration: every legal cut is listed, then the furthest is taken each time. Slow and obvious.
#pragma once

#include "hostpin.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace split_oracle {

struct Input {
  std::vector<uint64_t> tensor_sizes;
  uint64_t num_blocks;
  uint64_t total_size;
  uint64_t max_chunk_bytes;
  uint64_t page_size;
};

struct Answer {
  int32_t status = HP_OK;
  std::vector<hp_range> ranges;
  uint64_t offset = 0;    // HP_E_NO_BOUNDARY: nothing is legal within a chunk after offset,
  uint64_t next_cut = 0;  // and next_cut is the first legal cut after it
};

// As many steps as either way of listing may take before it is not tried.
constexpr uint64_t max_steps = 200'000;

inline bool arguments_are_valid(const Input &in) {
  if (in.total_size % in.page_size != 0 || in.max_chunk_bytes < in.page_size) return false;
  uint64_t sum = 0;
  for (const uint64_t size : in.tensor_sizes) {
    if (in.num_blocks == 0 || size % in.num_blocks != 0 || size > in.total_size - sum) return false;
    sum += size;
  }
  return true;
}

inline bool is_legal(const Input &in, uint64_t offset) {
  if (offset % in.page_size != 0) return false;
  uint64_t start = 0;
  for (const uint64_t size : in.tensor_sizes) {
    if (size != 0 && offset >= start && offset - start <= size && (offset - start) % (size / in.num_blocks) == 0)
      return true;
    start += size;
  }
  return offset >= start;
}

// Two ways to list the legal cuts after offset 0: every page, or every block and then every page of the padding.
inline std::optional<std::vector<uint64_t>> legal_cuts(const Input &in) {
  std::vector<uint64_t> cuts;
  const uint64_t pages = in.total_size / in.page_size;
  if (pages <= max_steps / (in.tensor_sizes.size() + 1)) {
    for (uint64_t page = 1; page <= pages; ++page)
      if (is_legal(in, page * in.page_size)) cuts.push_back(page * in.page_size);
    return cuts;
  }
  uint64_t end = 0;
  for (const uint64_t size : in.tensor_sizes) end += size;
  const uint64_t padding_pages = (in.total_size - end) / in.page_size;
  if (padding_pages > max_steps || in.num_blocks > max_steps / (in.tensor_sizes.size() + 1)) return std::nullopt;
  uint64_t start = 0;
  for (const uint64_t size : in.tensor_sizes) {
    for (uint64_t block = 1; size != 0 && block <= in.num_blocks; ++block)
      if ((start + block * (size / in.num_blocks)) % in.page_size == 0)
        cuts.push_back(start + block * (size / in.num_blocks));
    start += size;
  }
  for (uint64_t page = 0; page <= padding_pages; ++page)
    cuts.push_back(in.total_size - (padding_pages - page) * in.page_size);
  return cuts;
}

// For valid arguments and all their legal cuts in order.
inline Answer split_at(const Input &in, const std::vector<uint64_t> &cuts) {
  Answer answer;
  uint64_t position = 0;
  while (in.total_size - position > in.max_chunk_bytes) {
    const auto after = std::upper_bound(cuts.begin(), cuts.end(), position + in.max_chunk_bytes);
    const uint64_t cut = after == cuts.begin() ? 0 : *(after - 1);
    if (cut <= position) return {HP_E_NO_BOUNDARY, {}, position, *after};
    answer.ranges.push_back({position, cut});
    position = cut;
  }
  answer.ranges.push_back({position, in.total_size});
  return answer;
}

// Nothing if the input is too large to be answered by enumeration.
inline std::optional<Answer> split(const Input &in) {
  if (!arguments_are_valid(in)) return Answer{HP_E_INVALID, {}, 0, 0};
  const auto cuts = legal_cuts(in);
  if (!cuts) return std::nullopt;
  return split_at(in, *cuts);
}

}  // namespace split_oracle
