// Memory of each kind that a behaviour may want to register. It is never given back: each behaviour is its own process.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sys/mman.h>

namespace gpu {

constexpr std::size_t kib = std::size_t{1} << 10, mib = kib << 10, gib = mib << 10;

std::size_t page_size();

// Fresh private pages. All of these throw NotApplicable where the system has no such memory.
char *map_pages(std::size_t pages, int protection = PROT_READ | PROT_WRITE);

// Private memory that must not be backed yet: `simulated` because only a real driver makes the pages present.
char *map_large(std::size_t bytes, bool simulated);

// Pages of a file on a filesystem that keeps track of what is written, which tmpfs does not.
char *map_file(std::size_t pages, int protection, int sharing);

char *map_memfd(std::size_t pages);
char *map_huge_page(std::size_t &bytes);

// Pages with nothing mapped behind them for a long way; `pages` 0: an address where nothing is mapped.
char *map_before_hole(std::size_t pages);

} // namespace gpu
