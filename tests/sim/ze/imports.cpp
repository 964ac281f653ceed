// The table of imported ranges. Its answers are those of Intel's driver 22.43 and 26.27, which
// - count a range that lies in an earlier import as imported and record nothing, so the first release ends both;
// - do not see that a new range contains an old one, and then lose the bytes behind the old one;
// - release the whole range for any pointer into it.
// With strict=1 each of these ends the program instead. A size that wraps around the address space always does: they
// record it and can never release it.
#include "imports.h"

#include "../hsa/script.h"
#include "hostpin_ze.h"
#include "settings.h"

#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>

namespace {

// Outlives every caller, static destructors too.
struct Table {
  std::mutex mutex;
  std::map<uintptr_t, size_t> ranges;
};

Table &table() {
  static Table *const only = new Table;
  return *only;
}

using Range = std::map<uintptr_t, size_t>::iterator;

Range range_with(uintptr_t address) {
  auto &ranges = table().ranges;
  const auto after = ranges.upper_bound(address);
  if (after == ranges.begin()) return ranges.end();
  const auto before = std::prev(after);
  return address - before->first < before->second ? before : ranges.end();
}

bool overlaps_any(uintptr_t first, uintptr_t last) {
  const auto next = table().ranges.lower_bound(first);
  return range_with(first) != table().ranges.end() || (next != table().ranges.end() && next->first <= last);
}

// What the real table says to a range that begins or ends in an import, or success for one that is new to it.
ze_result_t overlap_answer(Range head, Range tail) {
  const Range none = table().ranges.end();
  if (head == none && tail == none) return ZE_RESULT_SUCCESS;
  if (head == none) return ZE_RESULT_ERROR_INVALID_SIZE;
  if (tail == none) return ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE;
  return head == tail ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OVERLAPPING_REGIONS;
}

bool is_refused(size_t size) {
  const uint64_t limit = sim::settings.fail_import_above;
  const bool turn = sim::is_turn(sim::settings.fail_import_call);
  return turn || (limit != 0 && size > limit);
}

} // namespace

namespace sim {

ze_result_t import_external_pointer(ze_driver_handle_t driver, void *pointer, size_t size) {
  check_driver(driver);
  ++counters.import;
  if (pointer == nullptr || size == 0) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  if (settings.import != 0) return as_result(settings.import);
  if (is_refused(size)) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  const auto first = reinterpret_cast<uintptr_t>(pointer), last = first + size - 1;
  const std::lock_guard lock(table().mutex);
  if (last < first) punish("import of %p with %zu bytes wraps around", pointer, size);
  if (settings.strict != 0 && overlaps_any(first, last))
    punish("import of %p with %zu bytes overlaps an earlier one", pointer, size);
  const Range head = range_with(first), tail = range_with(last);
  const ze_result_t answer = overlap_answer(head, tail);
  if (answer != ZE_RESULT_SUCCESS || head != table().ranges.end()) return answer;
  table().ranges.emplace(first, size);
  ++counters.live;
  return ZE_RESULT_SUCCESS;
}

ze_result_t release_imported_pointer(ze_driver_handle_t driver, void *pointer) {
  check_driver(driver);
  ++counters.release;
  if (settings.release != 0) return as_result(settings.release);
  if (is_turn(settings.fail_release_call)) return ZE_RESULT_ERROR_UNKNOWN;
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const std::lock_guard lock(table().mutex);
  const Range range = range_with(address);
  const bool found = range != table().ranges.end();
  if (settings.strict != 0 && (!found || range->first != address))
    punish("release of %p, which is not the base of an import", pointer);
  if (!found) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  table().ranges.erase(range);
  --counters.live;
  return ZE_RESULT_SUCCESS;
}

ze_result_t host_pointer_base_address(ze_driver_handle_t driver, void *pointer, void **base) {
  check_driver(driver);
  const std::lock_guard lock(table().mutex);
  const Range range = range_with(reinterpret_cast<uintptr_t>(pointer));
  if (range == table().ranges.end()) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  if (base != nullptr) *base = reinterpret_cast<void *>(range->first);
  return ZE_RESULT_SUCCESS;
}

} // namespace sim

extern "C" int hostpin_ze_covers(const void *address) {
  const std::lock_guard lock(table().mutex);
  return range_with(reinterpret_cast<uintptr_t>(address)) != table().ranges.end();
}
