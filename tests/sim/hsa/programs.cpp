// Code objects: HIP 5.2.3 builds its copy kernels when it first waits for a device, as hipHostUnregister does. They
// load here and never run.
#include <hsa/hsa.h>

#include <cstdint>

namespace {

alignas(64) unsigned char kernel_descriptor[256];

} // namespace

extern "C" {

hsa_status_t hsa_code_object_reader_create_from_memory(const void *, size_t, hsa_code_object_reader_t *reader) {
  reader->handle = 1;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_code_object_reader_destroy(hsa_code_object_reader_t) { return HSA_STATUS_SUCCESS; }

hsa_status_t hsa_executable_create_alt(hsa_profile_t, hsa_default_float_rounding_mode_t, const char *,
                                       hsa_executable_t *executable) {
  executable->handle = 1;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_executable_destroy(hsa_executable_t) { return HSA_STATUS_SUCCESS; }

hsa_status_t hsa_executable_load_agent_code_object(hsa_executable_t, hsa_agent_t, hsa_code_object_reader_t,
                                                   const char *, hsa_loaded_code_object_t *loaded) {
  if (loaded != nullptr) loaded->handle = 1;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_executable_freeze(hsa_executable_t, const char *) { return HSA_STATUS_SUCCESS; }

hsa_status_t hsa_executable_get_symbol_by_name(hsa_executable_t, const char *, const hsa_agent_t *,
                                               hsa_executable_symbol_t *symbol) {
  symbol->handle = 1;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t hsa_executable_symbol_get_info(hsa_executable_symbol_t, hsa_executable_symbol_info_t attribute,
                                            void *value) {
  auto *number = static_cast<uint32_t *>(value);
  switch (attribute) {
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT:
      *static_cast<uint64_t *>(value) = reinterpret_cast<uint64_t>(kernel_descriptor);
      break;
    case HSA_EXECUTABLE_SYMBOL_INFO_TYPE: *number = HSA_SYMBOL_KIND_KERNEL; break;
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_SIZE: *number = sizeof kernel_descriptor; break;
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_ALIGNMENT: *number = 16; break;
    default: *number = 0;
  }
  return HSA_STATUS_SUCCESS;
}

} // extern "C"
