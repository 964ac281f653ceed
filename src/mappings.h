// How memory of this process is mapped, as the kernel tells.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace hp {

struct Mapping {
  bool unknown = false;    // the kernel could not be asked
  bool mapped = false;     // all of it
  bool readable = false;   // all of it
  bool writable = false;   // all of it
  bool anonymous = false;  // all of it is memory without a name
  bool file = false;       // some of it is a file on a filesystem that is not in memory, as tmpfs and hugetlbfs are
  bool device = false;     // some of it is memory of a device (PFN or I/O mapping)
};
Mapping mapping_of(uint64_t start, uint64_t end) noexcept;

// Largest page size of the mappings there: larger than the system's for hugetlb. Before Linux 6.11 the kernel may look
// at every page for the answer, so this is for ranges that take far longer to pin.
uint64_t largest_page(uint64_t start, uint64_t end) noexcept;

// A file or memory object that is mapped shared.
struct SharedObject {
  uint64_t device = 0;
  uint64_t inode = 0;
};
// Those that the range maps, as many as there is room for; returns how many.
size_t shared_objects(uint64_t start, uint64_t end, std::span<SharedObject> out) noexcept;

}  // namespace hp
