// Which CPUs the threads that make pages present run on.
#include <sched.h>
#include <sys/mman.h>

#include <initializer_list>
#include <string>
#include <thread>
#include <utility>

#include "catch.h"
#include "cpus.h"

namespace {

bool is(const hp::Cpus &cpus, std::initializer_list<unsigned> wanted) {
  for (const unsigned cpu : wanted)
    if (!CPU_ISSET_S(cpu, sizeof(cpus), cpus.sets)) return false;
  return hp::count(cpus) == wanted.size();
}

}  // namespace

TEST_CASE("lists of CPUs as the kernel writes them") {
  hp::Cpus cpus;
  CHECK((hp::parse_cpu_list("0\n", cpus) && is(cpus, {0})));
  CHECK((hp::parse_cpu_list("0-3,8,10-11", cpus) && is(cpus, {0, 1, 2, 3, 8, 10, 11})));
  CHECK((hp::parse_cpu_list("8191", cpus) && is(cpus, {8191})));
  CHECK((hp::parse_cpu_list("0-8191\n", cpus) && hp::count(cpus) == 8192));
}

TEST_CASE("what is no list of CPUs") {
  hp::Cpus cpus;
  for (const char *text : {"", "\n", "x", "1-", "1-x", "3-1", "8192", "0-8192", "1,", "1;2", "1 2", "99999999999999999999"}) {
    CAPTURE(text);
    CHECK_FALSE(hp::parse_cpu_list(text, cpus));
  }
}

TEST_CASE("threads stay among the CPUs that the caller may use") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
  void *const memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  int one = 0;
  while (!CPU_ISSET(one, &before)) ++one;
  bool told = false;
  hp::Cpus cpus;
  cpu_set_t after;
  std::thread([&] {
    hp::Cpus only;
    CPU_ZERO_S(sizeof(only), only.sets);
    CPU_SET_S(static_cast<unsigned>(one), sizeof(only), only.sets);
    hp::stay_on(only);
    told = hp::cpus_for_memory(reinterpret_cast<uintptr_t>(memory), cpus);
    sched_getaffinity(0, sizeof(after), &after);
  }).join();
  munmap(memory, 4096);
  CHECK(told);
  CHECK(is(cpus, {static_cast<unsigned>(one)}));
  CHECK((CPU_COUNT(&after) == 1 && CPU_ISSET(one, &after)));
}
