// What this machine and this process allow, as far as pinning cares.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace info {

// Huge pages of one size that the administrator has set aside.
struct HugePages {
  uint64_t page_size;
  uint64_t free;
  uint64_t total;
};

struct SystemFacts {
  std::string kernel;
  std::optional<uint64_t> kernel_pin_limit;  // bytes in one driver call that are safe on this kernel
  bool wsl = false;
  uint64_t page_size = 0;
  std::optional<uint64_t> memlock_soft;  // nothing: unlimited
  std::optional<uint64_t> memlock_hard;
  std::optional<uint64_t> memory_total;
  std::optional<uint64_t> memory_available;  // to this process
  std::optional<uint64_t> memory_usable;
  std::optional<uint64_t> cgroup_limit;  // where it is lower than the machine's memory
  std::optional<uint64_t> budget;        // HOSTPIN_BUDGET, in bytes
  std::string thp;                       // "always", "madvise", "never"; "" where the kernel has none
  std::string thp_shmem;
  std::vector<HugePages> huge_pages;  // by size
  unsigned numa_nodes = 1;
};

SystemFacts read_system_facts();

}  // namespace info
