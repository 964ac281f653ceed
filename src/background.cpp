#include "background.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "state.h"

namespace hp {

namespace {

constexpr std::chrono::seconds kExitPatience{2};

constinit std::atomic<unsigned> g_calls{0};  // driver calls under way
constinit std::atomic<bool> g_exiting{false};

// A call that does not come back is left behind.
void at_exit() {
  const State *state = State::existing();
  if (state && state->forked()) return;  // in a child: the calls are its parent's
  const auto deadline = std::chrono::steady_clock::now() + kExitPatience;
  g_exiting = true;
  while (g_calls != 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

void watch_for_exit() noexcept {
  static constinit std::atomic<bool> watching{false};
  if (!watching.exchange(true)) std::atexit(at_exit);
}

void start_background(void (*run)(void *), void *argument) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(run, argument).detach();
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Counted first and asked then, so that exit either sees the call or is seen by it.
DriverCall::DriverCall() noexcept {
  ++g_calls;
  allowed_ = !g_exiting;
}

DriverCall::~DriverCall() { --g_calls; }

}  // namespace hp
