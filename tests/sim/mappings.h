// What /proc/self/maps says of a range.
#pragma once

#include <cstdint>
#include <string>

namespace sim {

struct Mapping {
    bool mapped;      // no hole in the range
    bool read_only;   // some of it can be read and not written
    std::string file; // "device-inode" of the shared file at its start, or empty
};

Mapping mapping_of(uintptr_t start, uintptr_t end);

} // namespace sim
