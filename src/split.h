// Ranges and copies cut at legal places: pure arithmetic, no state, no allocation, no exception.
#pragma once

#include "hostpin.h"

#include <cstddef>
#include <cstdint>

namespace hp {

// hp_split_ranges with its defaults resolved: max_chunk_bytes and page_size are not zero, num_ranges is not null,
// ranges is null only with capacity 0. On failure the reason is in message; num_ranges is written on success and on
// HP_E_TOO_SMALL, ranges on success only.
int32_t split_ranges(const uint64_t *tensor_sizes, size_t num_tensors, uint64_t num_blocks, uint64_t total_size,
                     uint64_t max_chunk_bytes, uint64_t page_size, hp_range *ranges, size_t capacity,
                     size_t *num_ranges, char *message, size_t message_capacity) noexcept;

// The first segment border after an address: the end of the segment that holds it, or else the start of the next
// segment, or UINT64_MAX if there is none. Always greater than the address.
struct SegmentBorders {
  uint64_t (*after)(const void *context, uint64_t address);
  const void *context;
};

using Copy = hp_copy;

// The same copies with each that crosses a segment border cut there; one of 0 bytes stays as it is. Terms as above; out
// must not overlap in. Segments that come or go during the call are safe: no more than capacity copies are ever
// written, but then out may be written although the answer is HP_E_TOO_SMALL.
int32_t split_copies(const Copy *in, size_t n, Copy *out, size_t capacity, size_t *count, SegmentBorders borders,
                     char *message, size_t message_capacity) noexcept;

}  // namespace hp
