// One CPU and some GPUs, with the properties of a gfx900 card that HIP asks for, and their memory pools.
#include "settings.h"

#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include <cstring>
#include <string_view>

namespace {

// Handles: the GPU of index i is first_gpu + i.
constexpr uint64_t cpu_agent = 1, first_gpu = 16;
enum : uint64_t { fine_pool = 1, coarse_pool, kernarg_pool, device_pool };
constexpr uint64_t isa_handle = 1;
constexpr std::string_view isa_name = "amdgcn-amd-amdhsa--gfx900:xnack-";
constexpr size_t pool_bytes = size_t{16} << 30;

bool is_gpu(hsa_agent_t agent) { return agent.handle >= first_gpu; }
uint32_t gpu_index(hsa_agent_t agent) { return static_cast<uint32_t>(agent.handle - first_gpu); }

template <class T> void put(void *value, T data) { std::memcpy(value, &data, sizeof data); }

template <class T, size_t N> void put(void *value, const T (&data)[N]) { std::memcpy(value, data, sizeof data); }

void put_text(void *value, size_t room, std::string_view text) {
  std::memset(value, 0, room);
  std::memcpy(value, text.data(), text.size());
}

hsa_status_t amd_agent_info(hsa_agent_t agent, uint32_t attribute, void *value) {
  switch (attribute) {
    case HSA_AMD_AGENT_INFO_CHIP_ID: put<uint32_t>(value, 0x6860); break;
    case HSA_AMD_AGENT_INFO_CACHELINE_SIZE: put<uint32_t>(value, 64); break;
    case HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT:
    case HSA_AMD_AGENT_INFO_COOPERATIVE_COMPUTE_UNIT_COUNT: put<uint32_t>(value, 64); break;
    case HSA_AMD_AGENT_INFO_MAX_CLOCK_FREQUENCY:
    case HSA_AMD_AGENT_INFO_MEMORY_MAX_FREQUENCY: put<uint32_t>(value, 1000); break;
    case HSA_AMD_AGENT_INFO_DRIVER_NODE_ID: put<uint32_t>(value, is_gpu(agent) ? 1 + gpu_index(agent) : 0); break;
    case HSA_AMD_AGENT_INFO_BDFID: put<uint32_t>(value, (3 + gpu_index(agent)) << 8); break;
    case HSA_AMD_AGENT_INFO_DOMAIN: put<uint32_t>(value, 0); break;
    case HSA_AMD_AGENT_INFO_MEMORY_WIDTH: put<uint32_t>(value, 2048); break;
    case HSA_AMD_AGENT_INFO_MAX_WAVES_PER_CU: put<uint32_t>(value, 40); break;
    case HSA_AMD_AGENT_INFO_NUM_SIMDS_PER_CU:
    case HSA_AMD_AGENT_INFO_NUM_SHADER_ENGINES: put<uint32_t>(value, 4); break;
    case HSA_AMD_AGENT_INFO_ASIC_REVISION: put<uint32_t>(value, 1); break;
    case HSA_AMD_AGENT_INFO_PRODUCT_NAME: put_text(value, 64, "HSA stand-in"); break;
    case HSA_AMD_AGENT_INFO_UUID: put_text(value, 21, "GPU-0123456789abcdef"); break;
    case HSA_AMD_AGENT_INFO_HDP_FLUSH: put(value, hsa_amd_hdp_flush_t{}); break;
    case HSA_AMD_AGENT_INFO_COOPERATIVE_QUEUES:
    case HSA_AMD_AGENT_INFO_SVM_DIRECT_HOST_ACCESS: put(value, false); break;
    default: return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  }
  return HSA_STATUS_SUCCESS;
}

uint32_t pool_flags(hsa_amd_memory_pool_t pool) {
  switch (pool.handle) {
    case fine_pool: return HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED;
    case kernarg_pool:
      return HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED | HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT;
    default: return HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED;
  }
}

} // namespace

extern "C" {

hsa_status_t hsa_iterate_agents(hsa_status_t (*callback)(hsa_agent_t, void *), void *data) {
  hsa_status_t status = callback(hsa_agent_t{cpu_agent}, data);
  for (uint64_t i = 0; i < sim::settings.gpus && status == HSA_STATUS_SUCCESS; ++i)
    status = callback(hsa_agent_t{first_gpu + i}, data);
  return status;
}

hsa_status_t hsa_agent_get_info(hsa_agent_t agent, hsa_agent_info_t attribute, void *value) {
  switch (attribute) {
    case HSA_AGENT_INFO_NAME: put_text(value, 64, is_gpu(agent) ? "gfx900" : "CPU"); break;
    case HSA_AGENT_INFO_VENDOR_NAME: put_text(value, 64, "hostpin"); break;
    case HSA_AGENT_INFO_DEVICE: put(value, is_gpu(agent) ? HSA_DEVICE_TYPE_GPU : HSA_DEVICE_TYPE_CPU); break;
    case HSA_AGENT_INFO_PROFILE: put(value, HSA_PROFILE_BASE); break;
    case HSA_AGENT_INFO_MACHINE_MODEL: put(value, HSA_MACHINE_MODEL_LARGE); break;
    case HSA_AGENT_INFO_DEFAULT_FLOAT_ROUNDING_MODE: put(value, HSA_DEFAULT_FLOAT_ROUNDING_MODE_NEAR); break;
    case HSA_AGENT_INFO_FAST_F16_OPERATION: put(value, true); break;
    case HSA_AGENT_INFO_WAVEFRONT_SIZE: put<uint32_t>(value, 64); break;
    case HSA_AGENT_INFO_WORKGROUP_MAX_SIZE: put<uint32_t>(value, 1024); break;
    case HSA_AGENT_INFO_WORKGROUP_MAX_DIM: put<uint16_t>(value, {1024, 1024, 1024}); break;
    case HSA_AGENT_INFO_GRID_MAX_SIZE: put<uint32_t>(value, 1u << 30); break;
    case HSA_AGENT_INFO_GRID_MAX_DIM: put<uint32_t>(value, {1u << 30, 1u << 30, 1u << 30}); break;
    case HSA_AGENT_INFO_QUEUES_MAX: put<uint32_t>(value, 128); break;
    case HSA_AGENT_INFO_QUEUE_MIN_SIZE: put<uint32_t>(value, 64); break;
    case HSA_AGENT_INFO_QUEUE_MAX_SIZE: put<uint32_t>(value, 131072); break;
    case HSA_AGENT_INFO_QUEUE_TYPE: put(value, HSA_QUEUE_TYPE_MULTI); break;
    case HSA_AGENT_INFO_NODE: put<uint32_t>(value, is_gpu(agent) ? 1 + gpu_index(agent) : 0); break;
    case HSA_AGENT_INFO_CACHE_SIZE: put<uint32_t>(value, {16384, 4 << 20, 0, 0}); break;
    case HSA_AGENT_INFO_ISA: put(value, hsa_isa_t{isa_handle}); break;
    case HSA_AGENT_INFO_EXTENSIONS: std::memset(value, 0, 128); break;
    case HSA_AGENT_INFO_VERSION_MAJOR:
    case HSA_AGENT_INFO_VERSION_MINOR: put<uint16_t>(value, 1); break;
    default: return amd_agent_info(agent, static_cast<uint32_t>(attribute), value);
  }
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_agent_iterate_isas(hsa_agent_t, hsa_status_t (*callback)(hsa_isa_t, void *), void *data) {
  return callback(hsa_isa_t{isa_handle}, data);
}

hsa_status_t hsa_isa_get_info_alt(hsa_isa_t, hsa_isa_info_t attribute, void *value) {
  switch (attribute) {
    case HSA_ISA_INFO_NAME_LENGTH: put<uint32_t>(value, isa_name.size() + 1); break;
    case HSA_ISA_INFO_NAME: put_text(value, isa_name.size() + 1, isa_name); break;
    default: return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  }
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_agent_iterate_memory_pools(hsa_agent_t agent,
                                                hsa_status_t (*callback)(hsa_amd_memory_pool_t, void *), void *data) {
  if (is_gpu(agent)) return callback(hsa_amd_memory_pool_t{device_pool}, data);
  for (const uint64_t pool : {fine_pool, coarse_pool, kernarg_pool})
    if (const hsa_status_t status = callback(hsa_amd_memory_pool_t{pool}, data); status != HSA_STATUS_SUCCESS)
      return status;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_memory_pool_get_info(hsa_amd_memory_pool_t pool, hsa_amd_memory_pool_info_t attribute,
                                          void *value) {
  switch (attribute) {
    case HSA_AMD_MEMORY_POOL_INFO_SEGMENT: put(value, HSA_AMD_SEGMENT_GLOBAL); break;
    case HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS: put(value, pool_flags(pool)); break;
    case HSA_AMD_MEMORY_POOL_INFO_SIZE:
    case HSA_AMD_MEMORY_POOL_INFO_ALLOC_MAX_SIZE: put(value, pool_bytes); break;
    case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED: put(value, true); break;
    case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_GRANULE:
    case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALIGNMENT: put<size_t>(value, 4096); break;
    case HSA_AMD_MEMORY_POOL_INFO_ACCESSIBLE_BY_ALL: put(value, pool.handle != device_pool); break;
    default: return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  }
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_amd_agent_memory_pool_get_info(hsa_agent_t agent, hsa_amd_memory_pool_t pool,
                                                hsa_amd_agent_memory_pool_info_t attribute, void *value) {
  const bool own = (pool.handle == device_pool) == is_gpu(agent);
  switch (attribute) {
    case HSA_AMD_AGENT_MEMORY_POOL_INFO_ACCESS:
      put(value,
          own ? HSA_AMD_MEMORY_POOL_ACCESS_ALLOWED_BY_DEFAULT : HSA_AMD_MEMORY_POOL_ACCESS_DISALLOWED_BY_DEFAULT);
      break;
    case HSA_AMD_AGENT_MEMORY_POOL_INFO_NUM_LINK_HOPS: put<uint32_t>(value, 1); break;
    case HSA_AMD_AGENT_MEMORY_POOL_INFO_LINK_INFO: put(value, hsa_amd_memory_pool_link_info_t{}); break;
    default: return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  }
  return HSA_STATUS_SUCCESS;
}

} // extern "C"
