// libhostpin's calls in the short form that behaviours use.
#pragma once

#include "libraries.h"

namespace gpu {

// 0, as HP_OK: all of it is pinned; 1, as HP_PAGEABLE: some of it is not.
inline int query(const Libraries &lib, const void *ptr, std::size_t len) {
    return lib.hostpin.query(ptr, len, nullptr);
}

inline hp_stats stats(const Libraries &lib) {
    hp_stats all{};
    all.struct_size = sizeof all;
    if (lib.hostpin.get_stats(&all) != HP_OK) all = {};
    return all;
}

} // namespace gpu
