// Memory of the pools, and the locking of host memory in which hipHostRegister ends.
#include "hostpin_hsa.h"
#include "script.h"
#include "settings.h"

#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include <sys/mman.h>

namespace {

constexpr uintptr_t alias_distance = uintptr_t{1} << 40;

// Both tables outlive every caller, HIP's static destructors too.
struct Tables {
  std::mutex mutex;
  std::multimap<uintptr_t, size_t> locks;
  std::map<uintptr_t, size_t> pool_memory;
};

Tables &tables() {
  static Tables *const all = new Tables;
  return *all;
}

bool is_refused(size_t bytes) {
  const uint64_t limit = sim::settings.fail_lock_above;
  const bool turn = sim::is_turn(sim::settings.fail_lock_call);
  return turn || (limit != 0 && bytes > limit);
}

} // namespace

extern "C" {

hsa_status_t hsa_amd_memory_lock_to_pool(void *host, size_t bytes, hsa_agent_t *, int, hsa_amd_memory_pool_t, uint32_t,
                                         void **device) {
  ++sim::counters.lock;
  if (host == nullptr || bytes == 0) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  if (is_refused(bytes)) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  const auto address = reinterpret_cast<uintptr_t>(host);
  const std::lock_guard lock(tables().mutex);
  tables().locks.emplace(address, bytes);
  *device = reinterpret_cast<void *>(sim::settings.alias != 0 ? address + alias_distance : address);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_memory_unlock(void *host) {
  ++sim::counters.unlock;
  const std::lock_guard lock(tables().mutex);
  const auto found = tables().locks.find(reinterpret_cast<uintptr_t>(host));
  if (found == tables().locks.end()) {
    std::fprintf(stderr, "HSA stand-in: unlock of %p, which is not locked\n", host);
    std::abort();
  }
  tables().locks.erase(found);
  return HSA_STATUS_SUCCESS;
}

uint64_t hostpin_hsa_locks_at(const void *address) {
  const auto byte = reinterpret_cast<uintptr_t>(address);
  const std::lock_guard lock(tables().mutex);
  return static_cast<uint64_t>(std::ranges::count_if(
      tables().locks, [byte](const auto &range) { return range.first <= byte && byte - range.first < range.second; }));
}

hsa_status_t hsa_amd_memory_pool_allocate(hsa_amd_memory_pool_t, size_t bytes, uint32_t, void **memory) {
  void *mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  const std::lock_guard lock(tables().mutex);
  tables().pool_memory.emplace(reinterpret_cast<uintptr_t>(mapping), bytes);
  *memory = mapping;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_memory_pool_free(void *memory) {
  const std::lock_guard lock(tables().mutex);
  const auto found = tables().pool_memory.find(reinterpret_cast<uintptr_t>(memory));
  if (found == tables().pool_memory.end()) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  munmap(memory, found->second);
  tables().pool_memory.erase(found);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_agents_allow_access(uint32_t, const hsa_agent_t *, const uint32_t *, const void *) {
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_pointer_info(const void *, hsa_amd_pointer_info_t *info, void *(*)(size_t), uint32_t *,
                                  hsa_agent_t **) {
  const uint32_t size = info->size;
  std::memset(static_cast<void *>(info), 0, size);
  info->size = size;
  info->type = HSA_EXT_POINTER_TYPE_UNKNOWN;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_memory_register(void *, size_t) { return HSA_STATUS_SUCCESS; }
hsa_status_t hsa_memory_deregister(void *, size_t) { return HSA_STATUS_SUCCESS; }

hsa_status_t hsa_memory_copy(void *to, const void *from, size_t bytes) {
  std::memcpy(to, from, bytes);
  return HSA_STATUS_SUCCESS;
}

} // extern "C"
