// Functions that libamdhip64 must find to be loaded and that nothing on the way of a host registration needs. No HSA
// header here: the names are all that counts, so each takes no argument, and answers a plain HSA_STATUS_SUCCESS or
// HSA_STATUS_ERROR.
#define ACCEPT(name) \
  int name() { return 0; }
#define REFUSE(name) \
  int name() { return 0x1000; }

extern "C" {

ACCEPT(hsa_amd_coherency_set_type)
ACCEPT(hsa_amd_profiling_async_copy_enable)
ACCEPT(hsa_amd_profiling_set_profiler_enabled)
ACCEPT(hsa_amd_queue_cu_set_mask)
ACCEPT(hsa_amd_queue_set_priority)

REFUSE(hsa_amd_image_create)
REFUSE(hsa_amd_interop_map_buffer)
REFUSE(hsa_amd_interop_unmap_buffer)
REFUSE(hsa_amd_ipc_memory_attach)
REFUSE(hsa_amd_ipc_memory_create)
REFUSE(hsa_amd_ipc_memory_detach)
REFUSE(hsa_amd_memory_async_copy)
REFUSE(hsa_amd_memory_async_copy_rect)
REFUSE(hsa_amd_profiling_get_async_copy_time)
REFUSE(hsa_amd_profiling_get_dispatch_time)
REFUSE(hsa_amd_svm_attributes_get)
REFUSE(hsa_amd_svm_attributes_set)
REFUSE(hsa_amd_svm_prefetch_async)
REFUSE(hsa_executable_agent_global_variable_define)
REFUSE(hsa_ext_image_create)
REFUSE(hsa_ext_image_create_with_layout)
REFUSE(hsa_ext_image_data_get_info)
REFUSE(hsa_ext_image_destroy)
REFUSE(hsa_ext_image_export)
REFUSE(hsa_ext_image_import)
REFUSE(hsa_ext_sampler_create)
REFUSE(hsa_ext_sampler_destroy)

} // extern "C"
