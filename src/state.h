// What exists once in a process: made by the first call that needs it, and never destroyed, because other threads may
// still be in here when the process ends.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "config.h"
#include "registry.h"

namespace hp {

// The releasing of everything, on a thread of its own because a driver call cannot be broken off at a deadline.
struct Teardown {
  std::mutex mutex;
  std::condition_variable changed;
  bool running = false;
  uint64_t requests = 0;
  uint64_t answered = 0;  // so many of them
  std::atomic<uint64_t> newest{0};  // the newest registration that a request was for
  bool stuck = false;
};

class State {
public:
  // The state, if there is one yet. Takes no lock: it may be asked in a forked child.
  static State *existing() noexcept;
  static State &get();  // makes it; throws bad_alloc

  // Is this process a fork of the one that made the state?
  bool forked() const noexcept;

  const Config &config();
  int32_t configure(const hp_config &in, Report &report);

  Registry registry;
  Teardown teardown;

private:
  State();
  ~State();

  const std::atomic<uint32_t> *owner_mark_ = nullptr;  // in a page that the kernel wipes in children
  pid_t owner_ = 0;                                    // where it cannot
  std::mutex mutex_;
  std::atomic<bool> configured_{false};
  Config config_;
};

}  // namespace hp
