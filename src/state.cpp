#include "state.h"

#include <hostpin.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "log.h"
#include "system.h"

namespace hp {

namespace {
constinit std::atomic<State *> g_state{nullptr};
}

// A mark in memory costs a query one load, where getpid() would cost it a system call.
State::State() : owner_(getpid()) {
  void *page = mmap(nullptr, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::bad_alloc();
  if (madvise(page, page_size(), MADV_WIPEONFORK) == 0)
    owner_mark_ = new (page) std::atomic<uint32_t>(1);
  else
    munmap(page, page_size());
}

State::~State() {
  if (owner_mark_) munmap(const_cast<std::atomic<uint32_t> *>(owner_mark_), page_size());
}

State *State::existing() noexcept { return g_state.load(std::memory_order_acquire); }

State &State::get() {
  if (State *s = existing()) return *s;
  // No lock, since a fork could leave it taken: who comes second throws away what it made.
  State *fresh = new State;
  State *expected = nullptr;
  if (g_state.compare_exchange_strong(expected, fresh)) return *fresh;
  delete fresh;
  return *expected;
}

bool State::forked() const noexcept {
  return owner_mark_ ? owner_mark_->load(std::memory_order_relaxed) == 0 : getpid() != owner_;
}

const Config &State::config() {
  if (configured_.load(std::memory_order_acquire)) return config_;
  std::unique_lock lock(mutex_);
  if (configured_.load(std::memory_order_relaxed)) return config_;
  config_ = make_config();
  set_log_level(config_.log_level);
  configured_.store(true, std::memory_order_release);
  lock.unlock();
  warn_of_bad_values();
  return config_;
}

int32_t State::configure(const hp_config &in, Report &report) {
  std::lock_guard lock(mutex_);
  if (configured_.load(std::memory_order_relaxed)) {
    report.text.add("hp_configure: too late, the configuration is in use since the first hp_register or hp_get_backend");
    return HP_E_INVALID;
  }
  return hp::configure(in, report);
}

}  // namespace hp
