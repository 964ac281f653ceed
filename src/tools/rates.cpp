#include "rates.h"

#include <hostpin.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "memory.h"

namespace info {

namespace {

struct Way {
  Rate rate;
  bool present;
  uint32_t flags;
};
constexpr Way kWays[] = {
    {{"cold", "pages not there yet, left to the driver"}, false, 0},
    {{"cold, prefault", "HP_REGISTER_PREFAULT"}, false, HP_REGISTER_PREFAULT},
    {{"cold, huge", "HP_REGISTER_PREFAULT and HP_REGISTER_HUGEPAGES"}, false,
     HP_REGISTER_PREFAULT | HP_REGISTER_HUGEPAGES},
    {{"warm", "pages there before"}, true, 0},
    {{"warm, prefault", "pages there before, HP_REGISTER_PREFAULT"}, true, HP_REGISTER_PREFAULT},
};
constexpr int kRounds = 3;

// Time of one registration, in ns; 0, and `rates` says why, when the memory was not pinned.
uint64_t measure(const Way &way, Rates &rates) {
  Memory memory(rates.bytes);
  if (way.present) memory.touch();
  const uint64_t start = now_ns();
  int32_t status = hp_register(memory.address(), rates.bytes, way.flags);
  const uint64_t end = now_ns();
  memory.pinned = status == HP_OK || status == HP_E_STUCK;
  if (status != HP_OK) rates.message = hp_last_error();
  if (status >= 0 || memory.pinned) {
    const int32_t release = hp_unregister(memory.address());
    memory.pinned = memory.pinned && release != HP_OK;
    if (release != HP_OK && status == HP_OK) status = release, rates.message = hp_last_error();
  }
  rates.status = status;
  return status == HP_OK ? std::max<uint64_t>(end - start, 1) : 0;
}

void show_progress(int done) {
  const int all = kRounds * static_cast<int>(std::size(kWays));
  if (done < all)
    std::fprintf(stderr, "\rmeasuring: %d of %d", done + 1, all);
  else
    std::fputs("\r\x1b[K", stderr);
}

}  // namespace

double Rates::gib_per_second(const Rate &rate) const {
  return static_cast<double>(bytes) / (1 << 30) / (static_cast<double>(rate.ns) / 1e9);
}

Rates measure_rates(uint64_t bytes, bool progress) {
  volunteer_for_oom();
  Rates rates{.bytes = bytes, .status = HP_OK, .message = "", .ways = {}};
  start_driver();
  uint64_t times[std::size(kWays)][kRounds];
  int done = 0;
  for (int round = 0; round < kRounds && rates.status == HP_OK; ++round)
    for (size_t i = 0; i < std::size(kWays) && rates.status == HP_OK; ++i) {
      if (progress) show_progress(done++);
      // The second counts, and finds the pages that the first has left: a virtual machine may have to fetch others from
      // its host first.
      measure(kWays[i], rates);
      if (rates.status == HP_OK) times[i][round] = measure(kWays[i], rates);
    }
  if (progress) show_progress(kRounds * static_cast<int>(std::size(kWays)));
  for (size_t i = 0; i < std::size(kWays) && rates.status == HP_OK; ++i) {
    std::nth_element(times[i], times[i] + kRounds / 2, times[i] + kRounds);
    rates.ways.push_back(kWays[i].rate);
    rates.ways.back().ns = times[i][kRounds / 2];
  }
  return rates;
}

}  // namespace info
