#include "split.h"

#include <cinttypes>
#include <cstdio>

namespace hp {

static_assert(sizeof(size_t) == sizeof(uint64_t), "a count of ranges may need 64 bits");

namespace {

__extension__ typedef unsigned __int128 uint128_t;

struct Layout {
  const uint64_t *tensor_sizes;
  size_t num_tensors;
  uint64_t num_blocks;
  uint64_t total_size;
  uint64_t max_chunk_bytes;
  uint64_t page_size;
};

// A tensor by its place in the layout. The padding after the last tensor is one more, of one-byte blocks.
class Cursor {
public:
  explicit Cursor(const Layout &layout) : layout_(&layout) { size_ = size_at_start(); }

  size_t index() const { return index_; }
  uint64_t start() const { return start_; }
  uint64_t end() const { return start_ + size_; }
  bool is_padding() const { return index_ == layout_->num_tensors; }
  uint64_t num_blocks() const { return is_padding() ? size_ : layout_->num_blocks; }
  uint64_t block_size() const { return is_padding() ? 1 : size_ / layout_->num_blocks; }

  void next() {
    start_ += size_;
    ++index_;
    size_ = size_at_start();
  }

  void previous() {
    --index_;
    size_ = size_at_start();
    start_ -= size_;
  }

private:
  uint64_t size_at_start() const { return is_padding() ? layout_->total_size - start_ : layout_->tensor_sizes[index_]; }

  const Layout *layout_;
  size_t index_ = 0;
  uint64_t start_ = 0;
  uint64_t size_;
};

// The legal cuts of one tensor: the ends of its blocks number first, first + period, first + 2 * period and so on,
// where block 0 ends at the tensor's start. Counting blocks instead of bytes keeps every value within 64 bits.
class Cuts {
public:
  Cuts(const Cursor &tensor, uint64_t page_size)
      : start_(tensor.start()), block_size_(tensor.block_size()), num_blocks_(tensor.num_blocks()) {
    if (block_size_ != 0) solve(page_size);
  }

  // The last cut at or before limit, which is at or after the tensor's start; 0 if there is none.
  uint64_t last_until(uint64_t limit) const {
    if (period_ == 0) return 0;
    const uint64_t block = (limit - start_) / block_size_;
    return block < first_ ? 0 : at(block - (block - first_) % period_);
  }

  // The first cut at or after from; 0 if there is none.
  uint64_t first_from(uint64_t from) const {
    if (period_ == 0 || first_ > num_blocks_) return 0;
    if (from <= at(first_)) return at(first_);
    const uint64_t past_first = from - at(first_);
    const uint64_t blocks = past_first / block_size_ + (past_first % block_size_ != 0);
    const uint64_t periods = blocks / period_ + (blocks % period_ != 0);
    return periods > (num_blocks_ - first_) / period_ ? 0 : at(first_ + periods * period_);
  }

  // The longest distance between two cuts that is at most max_bytes; 0 if there is none.
  uint64_t longest_step(uint64_t max_bytes) const {
    const uint64_t blocks = max_bytes / block_size_;
    return (blocks - blocks % period_) * block_size_;
  }

private:
  uint64_t at(uint64_t block) const { return start_ + block * block_size_; }

  // Block k ends on a page where k * block_size = -start (mod page_size). Euclid's algorithm gives divisor =
  // gcd(block_size, page_size) = +-factor * block_size (mod page_size), and with it the smallest k.
  void solve(uint64_t page_size) {
    uint64_t divisor = page_size, rest = block_size_ % page_size;
    uint64_t factor = 0, next_factor = 1;
    bool negative = true;
    while (rest != 0) {
      const uint64_t quotient = divisor / rest;
      const uint64_t next_rest = divisor - quotient * rest;
      const uint64_t after_next = factor + quotient * next_factor;
      divisor = rest;
      rest = next_rest;
      factor = next_factor;
      next_factor = after_next;
      negative = !negative;
    }
    if (start_ % divisor != 0) return;
    period_ = page_size / divisor;
    const uint64_t pages = start_ / divisor % period_;
    first_ = static_cast<uint64_t>(static_cast<uint128_t>(pages) * factor % period_);
    if (!negative && first_ != 0) first_ = period_ - first_;
  }

  uint64_t start_;
  uint64_t block_size_;
  uint64_t num_blocks_;
  uint64_t first_ = 0;
  uint64_t period_ = 0;  // 0: no block ends on a page
};

int32_t check(const Layout &layout, char *message, size_t message_capacity) {
  if (layout.total_size % layout.page_size != 0) {
    std::snprintf(message, message_capacity,
                  "hp_split_ranges: total_size %" PRIu64 " is not a multiple of page_size %" PRIu64, layout.total_size,
                  layout.page_size);
    return HP_E_INVALID;
  }
  if (layout.max_chunk_bytes < layout.page_size) {
    std::snprintf(message, message_capacity, "hp_split_ranges: max_chunk_bytes %" PRIu64 " is below page_size %" PRIu64,
                  layout.max_chunk_bytes, layout.page_size);
    return HP_E_INVALID;
  }
  for (size_t i = 0; i < layout.num_tensors; ++i) {
    if (layout.num_blocks == 0 || layout.tensor_sizes[i] % layout.num_blocks != 0) {
      std::snprintf(message, message_capacity,
                    "hp_split_ranges: tensor %zu of %" PRIu64 " bytes cannot be divided into num_blocks %" PRIu64
                    " equal blocks",
                    i, layout.tensor_sizes[i], layout.num_blocks);
      return HP_E_INVALID;
    }
  }
  uint64_t start = 0;
  for (size_t i = 0; i < layout.num_tensors; ++i) {
    if (layout.tensor_sizes[i] > layout.total_size - start) {
      std::snprintf(message, message_capacity,
                    "hp_split_ranges: tensor %zu of %" PRIu64 " bytes at offset %" PRIu64
                    " ends beyond total_size %" PRIu64,
                    i, layout.tensor_sizes[i], start, layout.total_size);
      return HP_E_INVALID;
    }
    start += layout.tensor_sizes[i];
  }
  return HP_OK;
}

// There is one: total_size is a legal cut.
uint64_t first_cut_from(Cursor tensor, uint64_t from, uint64_t page_size) {
  for (;;) {
    const uint64_t cut = Cuts(tensor, page_size).first_from(from);
    if (cut != 0) return cut;
    tensor.next();
  }
}

struct MissingCut {
  uint64_t offset;
  uint64_t next_cut;
};

// Calls emit(start, length, count) for each run of count ranges of equal length, in order. False: no cut, see missing.
//
// No legal cut lies between a cut and the limit that it was chosen under, so the next one is looked for only past that
// limit: each tensor is visited once on the way forward and at most once on the way back, whatever the chunk size.
template <class Emit>
bool walk(const Layout &layout, Emit emit, MissingCut &missing) {
  uint64_t position = 0;
  Cursor tensor(layout);
  while (layout.total_size - position > layout.max_chunk_bytes) {
    const uint64_t limit = position + layout.max_chunk_bytes;
    const size_t previous_limit_index = tensor.index();
    while (tensor.end() < limit) tensor.next();
    const Cuts cuts(tensor, layout.page_size);
    uint64_t cut = cuts.last_until(limit);
    const bool cut_is_in_tensor = cut != 0;
    for (Cursor earlier = tensor; cut == 0 && earlier.index() > previous_limit_index;) {
      earlier.previous();
      cut = Cuts(earlier, layout.page_size).last_until(earlier.end());
    }
    if (cut <= position) {
      missing = {position, first_cut_from(tensor, limit, layout.page_size)};
      return false;
    }
    emit(position, cut - position, uint64_t{1});
    position = cut;
    if (!cut_is_in_tensor || tensor.end() - position < layout.max_chunk_bytes) continue;
    // Until the limit leaves the tensor every range has the same length.
    const uint64_t length = cuts.longest_step(layout.max_chunk_bytes);
    if (length == 0) continue;
    const uint64_t count = (tensor.end() - position - layout.max_chunk_bytes) / length + 1;
    emit(position, length, count);
    position += length * count;
  }
  // A run may have ended at total_size, and a total of zero has one empty range.
  if (position < layout.total_size || position == 0) emit(position, layout.total_size - position, uint64_t{1});
  return true;
}

}  // namespace

int32_t split_ranges(const uint64_t *tensor_sizes, size_t num_tensors, uint64_t num_blocks, uint64_t total_size,
                     uint64_t max_chunk_bytes, uint64_t page_size, hp_range *ranges, size_t capacity,
                     size_t *num_ranges, char *message, size_t message_capacity) noexcept {
  const Layout layout{tensor_sizes, num_tensors, num_blocks, total_size, max_chunk_bytes, page_size};
  const int32_t status = check(layout, message, message_capacity);
  if (status != HP_OK) return status;

  // Counted first because ranges must stay untouched on failure; a run costs the same however many ranges it has.
  size_t needed = 0;
  MissingCut missing{};
  const auto add = [&](uint64_t, uint64_t, uint64_t count) { needed += count; };
  if (!walk(layout, add, missing)) {
    std::snprintf(message, message_capacity,
                  "hp_split_ranges: no legal cut within max_chunk_bytes %" PRIu64 " after offset %" PRIu64
                  "; the nearest one is at offset %" PRIu64 ", %" PRIu64 " bytes further",
                  max_chunk_bytes, missing.offset, missing.next_cut, missing.next_cut - missing.offset);
    return HP_E_NO_BOUNDARY;
  }
  if (ranges != nullptr && capacity < needed) {
    std::snprintf(message, message_capacity, "hp_split_ranges: ranges has room for %zu, %zu are needed", capacity,
                  needed);
    *num_ranges = needed;
    return HP_E_TOO_SMALL;
  }
  *num_ranges = needed;
  if (ranges == nullptr) return HP_OK;
  const auto write = [&](uint64_t start, uint64_t length, uint64_t count) {
    for (; count != 0; --count, start += length) *ranges++ = {start, start + length};
  };
  walk(layout, write, missing);
  return HP_OK;
}

namespace {

// Calls emit(copy) for each piece, in order. Addresses are integers here: other may be no pointer of this process.
template <class Emit>
void cut_copy(const Copy &copy, SegmentBorders borders, Emit emit) {
  const uint64_t host = reinterpret_cast<uintptr_t>(copy.host);
  const uint64_t other = reinterpret_cast<uintptr_t>(copy.other);
  uint64_t done = 0;
  do {
    const uint64_t rest = copy.bytes - done;
    const uint64_t to_border = borders.after(borders.context, host + done) - (host + done);
    const uint64_t bytes = to_border < rest ? to_border : rest;
    emit(Copy{reinterpret_cast<const void *>(host + done), reinterpret_cast<void *>(other + done), bytes});
    done += bytes;
  } while (done < copy.bytes);
}

bool wraps(const void *address, uint64_t bytes) { return bytes > UINT64_MAX - reinterpret_cast<uintptr_t>(address); }

}  // namespace

int32_t split_copies(const Copy *in, size_t n, Copy *out, size_t capacity, size_t *count, SegmentBorders borders,
                     char *message, size_t message_capacity) noexcept {
  for (size_t i = 0; i < n; ++i) {
    if (wraps(in[i].host, in[i].bytes) || wraps(in[i].other, in[i].bytes)) {
      std::snprintf(message, message_capacity,
                    "hp_split_copies: copy %zu of %" PRIu64
                    " bytes from host %p and other %p wraps around the address space",
                    i, in[i].bytes, in[i].host, in[i].other);
      return HP_E_INVALID;
    }
  }
  size_t needed = 0;
  for (size_t i = 0; i < n; ++i) cut_copy(in[i], borders, [&](const Copy &) { ++needed; });
  if (out != nullptr && needed <= capacity) {
    needed = 0;
    for (size_t i = 0; i < n; ++i)
      cut_copy(in[i], borders, [&](const Copy &copy) {
        if (needed < capacity) out[needed] = copy;
        ++needed;
      });
  }
  *count = needed;
  if (out == nullptr || needed <= capacity) return HP_OK;
  std::snprintf(message, message_capacity, "hp_split_copies: out has room for %zu copies, %zu are needed", capacity,
                needed);
  return HP_E_TOO_SMALL;
}

}  // namespace hp
