#include "cpus.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace hp {

namespace {

constexpr unsigned long kMaxCpus = sizeof(Cpus) * 8;

// By default memory goes to the node of the thread that touches it first; no other policy looks at the thread's CPU.
bool goes_to_first_toucher(uint64_t address) noexcept {
  constexpr int kDefault = 0, kLocal = 4;
  constexpr unsigned long kOfAddress = 2;
  int policy = -1;
  return syscall(SYS_get_mempolicy, &policy, nullptr, 0, address, kOfAddress) == 0 &&
         (policy == kDefault || policy == kLocal);
}

bool cpus_of_this_node(Cpus &cpus) noexcept {
  unsigned cpu = 0;
  unsigned node = 0;
  if (syscall(SYS_getcpu, &cpu, &node, nullptr) != 0) return false;
  char name[64];
  std::snprintf(name, sizeof(name), "/sys/devices/system/node/node%u/cpulist", node);
  const int file = open(name, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char text[4096];
  const ssize_t n = read(file, text, sizeof(text) - 1);
  close(file);
  if (n <= 0) return false;
  text[n] = '\0';
  return parse_cpu_list(text, cpus);
}

}  // namespace

unsigned count(const Cpus &cpus) noexcept { return static_cast<unsigned>(CPU_COUNT_S(sizeof(cpus), cpus.sets)); }

bool parse_cpu_list(const char *text, Cpus &cpus) noexcept {
  CPU_ZERO_S(sizeof(cpus), cpus.sets);
  do {
    char *end = nullptr;
    const unsigned long first = std::strtoul(text, &end, 10);
    if (end == text) return false;
    unsigned long last = first;
    if (*end == '-') {
      text = end + 1;
      last = std::strtoul(text, &end, 10);
      if (end == text) return false;
    }
    if (last < first || last >= kMaxCpus) return false;
    for (unsigned long cpu = first; cpu <= last; ++cpu) CPU_SET_S(cpu, sizeof(cpus), cpus.sets);
    text = end + 1;
    if (*end != ',') return *end == '\0' || *end == '\n';
  } while (true);
}

bool cpus_for_memory(uint64_t address, Cpus &cpus) noexcept {
  CPU_ZERO_S(sizeof(cpus), cpus.sets);
  if (sched_getaffinity(0, sizeof(cpus), cpus.sets) != 0) return false;
  Cpus near;
  if (!goes_to_first_toucher(address) || !cpus_of_this_node(near)) return true;
  CPU_AND_S(sizeof(near), near.sets, near.sets, cpus.sets);
  if (count(near)) cpus = near;
  return true;
}

void stay_on(const Cpus &cpus) noexcept { sched_setaffinity(0, sizeof(cpus), cpus.sets); }

}  // namespace hp
