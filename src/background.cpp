#include "background.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>
#include <thread>

namespace hp {

namespace {

constexpr std::chrono::seconds kExitPatience{2};

// Leaked on purpose: threads may look at it while the process ends.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool exiting = false;
  unsigned calls = 0;  // under way on threads of ours
  pthread_key_t ours;  // set on these
};

constinit std::atomic<Gate *> g_gate{nullptr};

// Registered when the first thread is made, which is after the runtime was loaded: so it runs before the runtime's own
// teardown. A call that does not come back is left behind.
void at_exit() {
  Gate &gate = *g_gate.load();
  std::unique_lock lock(gate.mutex);
  gate.exiting = true;
  gate.changed.wait_for(lock, kExitPatience, [&] { return gate.calls == 0; });
}

Gate &gate() {
  static Gate *const made = [] {
    auto *g = new Gate;
    if (pthread_key_create(&g->ours, nullptr) != 0) {
      delete g;
      throw std::bad_alloc();
    }
    g_gate.store(g);
    std::atexit(at_exit);
    return g;
  }();
  return *made;
}

}  // namespace

void start_background(void (*run)(void *), void *argument) {
  Gate &g = gate();
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([&g, run, argument] {
      pthread_setspecific(g.ours, &g);
      run(argument);
    }).detach();
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

DriverCall::DriverCall() noexcept {
  Gate *g = g_gate.load(std::memory_order_acquire);
  if (!g || !pthread_getspecific(g->ours)) return;
  std::unique_lock lock(g->mutex);
  if (g->exiting) {
    lock.unlock();
    for (;;) pause();  // the process is about to end
  }
  ++g->calls;
  counted_ = true;
}

DriverCall::~DriverCall() {
  if (!counted_) return;
  Gate *g = g_gate.load(std::memory_order_acquire);
  const std::lock_guard lock(g->mutex);
  if (--g->calls == 0) g->changed.notify_all();
}

}  // namespace hp
