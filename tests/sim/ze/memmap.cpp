#include "memmap.h"

#include "../hsa/script.h"
#include "settings.h"

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

namespace {

constexpr char extension_name[] = "ZE_extension_external_memmap_sysmem";
constexpr uintptr_t page = 4096;

// ze_external_memmap_sysmem_ext_desc_t of Level Zero 1.14, which Debian 12's headers do not have yet.
struct MemmapDescription {
  uint32_t stype;
  const void *next;
  void *memory;
  uint64_t size;
};
constexpr uint32_t memmap_stype = 0x20037;
static_assert(sizeof(MemmapDescription) == 32);

struct Allocation {
  size_t size;
  bool mapped; // the application's pages, not ours
  bool kept;   // freed, but in the cache
};

struct Table {
  std::mutex mutex;
  std::map<uintptr_t, Allocation> allocations;
};

// Outlives every caller, static destructors too.
Table &table() {
  static Table *const only = new Table;
  return *only;
}

// What every description in a chain begins with.
struct Chained {
  uint32_t stype;
  const void *next;
};

const MemmapDescription *find_memmap(const void *chain) {
  for (const auto *one = static_cast<const Chained *>(chain); one != nullptr;
       one = static_cast<const Chained *>(one->next))
    if (one->stype == memmap_stype) return reinterpret_cast<const MemmapDescription *>(one);
  return nullptr;
}

char context_object;

void check_context(ze_context_handle_t context) {
  sim::check_process();
  if (reinterpret_cast<char *>(context) != &context_object)
    sim::punish("context handle %p is not ours", static_cast<void *>(context));
}

ze_result_t create_context(ze_driver_handle_t driver, const ze_context_desc_t *, ze_context_handle_t *context) {
  sim::check_driver(driver);
  if (sim::settings.context_create != 0) return sim::as_result(sim::settings.context_create);
  *context = reinterpret_cast<ze_context_handle_t>(&context_object);
  ++sim::counters.context;
  return ZE_RESULT_SUCCESS;
}

ze_result_t destroy_context(ze_context_handle_t context) {
  check_context(context);
  --sim::counters.context;
  return ZE_RESULT_SUCCESS;
}

using Entry = std::map<uintptr_t, Allocation>::value_type;

// The allocation with the byte at address, kept ones too, or null.
const Entry *allocation_with(uintptr_t address) {
  const auto after = table().allocations.upper_bound(address);
  if (after == table().allocations.begin()) return nullptr;
  const Entry &before = *std::prev(after);
  return address - before.first < before.second.size ? &before : nullptr;
}

bool overlaps_any(uintptr_t first, uint64_t size) {
  const auto next = table().allocations.lower_bound(first);
  return allocation_with(first) != nullptr || (next != table().allocations.end() && next->first - first < size);
}

ze_result_t map_memory(const MemmapDescription &description, size_t size, void **pointer) {
  const auto first = reinterpret_cast<uintptr_t>(description.memory);
  ++sim::counters.memmap_call;
  if (sim::settings.memmap_result != 0) return sim::as_result(sim::settings.memmap_result);
  if (sim::is_turn(sim::settings.fail_memmap_call)) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  if (first == 0 || first % page != 0 || description.size == 0 || description.size % page != 0 ||
      description.size != size)
    sim::punish("memmap of %p with %zu bytes is not whole pages", description.memory, size);
  if (overlaps_any(first, size))
    sim::punish("memmap of %p with %zu bytes overlaps an earlier one", description.memory, size);
  table().allocations[first] = {size, true, false};
  ++sim::counters.memmap;
  *pointer = description.memory;
  return ZE_RESULT_SUCCESS;
}

// The hazard of Intel's drivers up to 26.31: a freed range may wait in a cache, and the next allocation of its size is
// the application's memory.
bool take_from_cache(size_t size, void **pointer) {
  for (auto &[address, allocation] : table().allocations) {
    if (!allocation.kept || allocation.size != size) continue;
    allocation.kept = false;
    *pointer = reinterpret_cast<void *>(address);
    return true;
  }
  return false;
}

ze_result_t allocate(ze_context_handle_t context, const ze_host_mem_alloc_desc_t *description, size_t size, size_t,
                     void **pointer) {
  check_context(context);
  const MemmapDescription *memmap = sim::settings.memmap_ignored == 0 ? find_memmap(description->pNext) : nullptr;
  const std::lock_guard lock(table().mutex);
  if (memmap != nullptr) return map_memory(*memmap, size, pointer);
  if (take_from_cache(size, pointer)) return ZE_RESULT_SUCCESS;
  *pointer = std::aligned_alloc(page, (size + page - 1) / page * page);
  if (*pointer == nullptr) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  table().allocations[reinterpret_cast<uintptr_t>(*pointer)] = {size, false, false};
  ++sim::counters.allocation;
  return ZE_RESULT_SUCCESS;
}

ze_result_t release(ze_context_handle_t context, void *pointer) {
  check_context(context);
  const std::lock_guard lock(table().mutex);
  const auto found = table().allocations.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == table().allocations.end() || found->second.kept)
    sim::punish("zeMemFree of %p, which is not the base of an allocation", pointer);
  if (found->second.mapped) --sim::counters.memmap;
  if (found->second.mapped && sim::settings.memmap_kept != 0) {
    found->second.kept = true;
    return ZE_RESULT_SUCCESS;
  }
  if (!found->second.mapped) {
    --sim::counters.allocation;
    std::free(pointer);
  }
  table().allocations.erase(found);
  return ZE_RESULT_SUCCESS;
}

ze_result_t describe(ze_context_handle_t context, const void *pointer, ze_memory_allocation_properties_t *properties,
                     ze_device_handle_t *device) {
  check_context(context);
  const std::lock_guard lock(table().mutex);
  const bool known = allocation_with(reinterpret_cast<uintptr_t>(pointer)) != nullptr;
  properties->type = known ? ZE_MEMORY_TYPE_HOST : ZE_MEMORY_TYPE_UNKNOWN;
  properties->id = 0;
  properties->pageSize = known ? page : 0;
  if (device != nullptr) *device = nullptr;
  return ZE_RESULT_SUCCESS;
}

ze_result_t find_range(ze_context_handle_t context, const void *pointer, void **base, size_t *size) {
  check_context(context);
  const std::lock_guard lock(table().mutex);
  const Entry *entry = allocation_with(reinterpret_cast<uintptr_t>(pointer));
  if (entry == nullptr) return ZE_RESULT_ERROR_UNKNOWN; // as Intel's driver 22.43
  if (base != nullptr) *base = reinterpret_cast<void *>(entry->first);
  if (size != nullptr) *size = entry->second.size;
  return ZE_RESULT_SUCCESS;
}

} // namespace

namespace sim {

void fill_context_table(ze_context_dditable_t &table) {
  table.pfnCreate = create_context;
  table.pfnDestroy = destroy_context;
}

void fill_memory_table(ze_mem_dditable_t &table) {
  table.pfnAllocHost = allocate;
  table.pfnFree = release;
  table.pfnGetAllocProperties = describe;
  table.pfnGetAddressRange = find_range;
}

ze_result_t list_extensions(ze_driver_handle_t driver, uint32_t *count, ze_driver_extension_properties_t *extensions) {
  check_driver(driver);
  const uint32_t have = settings.memmap != 0 ? 1 : 0;
  if (extensions != nullptr && *count >= 1 && have == 1) {
    std::memcpy(extensions[0].name, extension_name, sizeof extension_name);
    extensions[0].version = 0x10000;
  }
  if (extensions == nullptr || *count > have) *count = have;
  return ZE_RESULT_SUCCESS;
}

} // namespace sim
