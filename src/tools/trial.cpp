#include "trial.h"

#include <hostpin.h>

#include <algorithm>

#include "memory.h"

namespace info {

namespace {

uint64_t segments_alive() {
  hp_stats stats{};
  stats.struct_size = sizeof(stats);
  return hp_get_stats(&stats) == HP_OK ? stats.segments : 0;
}

void unregister(Memory &memory, Trial &trial) {
  const uint64_t start = now_ns();
  trial.unregister_status = hp_unregister(memory.address());
  trial.unregister_ns = now_ns() - start;
  memory.pinned = trial.unregister_status != HP_OK;
  if (memory.pinned) trial.unregister_message = hp_last_error();
}

}  // namespace

double Trial::gib_per_second() const {
  return static_cast<double>(bytes) / (1 << 30) / (static_cast<double>(std::max<uint64_t>(register_ns, 1)) / 1e9);
}

Trial pin_fresh_memory(uint64_t bytes) {
  volunteer_for_oom();
  Trial trial{.bytes = bytes};
  Memory memory(bytes);
  memory.touch();
  trial.start_ns = start_driver();
  const uint64_t before = segments_alive();
  const uint64_t start = now_ns();
  trial.status = hp_register(memory.address(), bytes, 0);
  trial.register_ns = now_ns() - start;
  if (trial.status != HP_OK) trial.message = hp_last_error();
  // A stuck one holds segments, so they are tried again.
  memory.pinned = trial.status == HP_OK || trial.status == HP_E_STUCK;
  trial.segments = segments_alive() - before;
  if (trial.status >= 0 || memory.pinned) unregister(memory, trial);
  return trial;
}

}  // namespace info
