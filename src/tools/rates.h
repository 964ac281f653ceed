// A benchmark: how fast memory is pinned here, with its pages there or not, in the ways that the library offers.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace info {

struct Rate {
  const char *name;
  const char *words;
  uint64_t ns = 0;  // median
};

struct Rates {
  uint64_t bytes = 0;
  int32_t status = 0;   // of the first hp_register() that did not return HP_OK; there are no ways then
  std::string message;  // what it had to say
  std::vector<Rate> ways;

  double gib_per_second(const Rate &rate) const;
};

// Shows on stderr how far it is when `progress`. Throws std::system_error if the memory cannot be had.
Rates measure_rates(uint64_t bytes, bool progress);

}  // namespace info
