// What several behaviours ask about registered memory.
#pragma once

#include "libraries.h"

#include <cstddef>
#include <string>

namespace gpu {

// Memory type that the runtime sees at the address (0 unregistered, 1 host, 2 device), or minus its code.
int memory_type(const Libraries &lib, const void *address);

// Copies `bytes` from `memory` to the device and back into another buffer: "equal", "different", or the failing code.
std::string copy_there_and_back(const Libraries &lib, const char *memory, std::size_t bytes);

} // namespace gpu
