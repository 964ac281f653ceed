// Which CPUs threads of this library should run on.
#pragma once
#include <sched.h>

#include <cstdint>

namespace hp {

struct Cpus {
  cpu_set_t sets[8];  // 8192, as many as Linux can have
};
unsigned count(const Cpus &cpus) noexcept;

// Reads a list as the kernel writes it, "0-3,8,10-11". False if it is none.
bool parse_cpu_list(const char *text, Cpus &cpus) noexcept;

// Those on which a thread must run to put new pages where the calling thread would: all that it may use, but only those
// of its own NUMA node where memory at `address` goes to the node of whoever touches it first. False where the system
// does not tell.
bool cpus_for_memory(uint64_t address, Cpus &cpus) noexcept;

void stay_on(const Cpus &cpus) noexcept;  // the calling thread

}  // namespace hp
