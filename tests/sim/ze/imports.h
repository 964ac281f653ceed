// The functions that zeDriverGetExtensionFunctionAddress hands out, under the names Intel gave them.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>

namespace sim {

ze_result_t import_external_pointer(ze_driver_handle_t driver, void *pointer, std::size_t size);
ze_result_t release_imported_pointer(ze_driver_handle_t driver, void *pointer);
ze_result_t host_pointer_base_address(ze_driver_handle_t driver, void *pointer, void **base);

} // namespace sim
