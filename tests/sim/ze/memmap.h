// Host memory of a context, and the extension ZE_extension_external_memmap_sysmem, which makes such memory of pages
// that exist already.
#pragma once

#include <level_zero/ze_ddi.h>

namespace sim {

void fill_context_table(ze_context_dditable_t &table);
void fill_memory_table(ze_mem_dditable_t &table);

// zeDriverGetExtensionProperties: the extension if memmap=1, else none.
ze_result_t list_extensions(ze_driver_handle_t driver, uint32_t *count, ze_driver_extension_properties_t *extensions);

} // namespace sim
