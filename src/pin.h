// The course of one registration and of its end.
#pragma once
#include <hostpin.h>

#include <atomic>
#include <cstdint>
#include <span>

#include "backend.h"
#include "error.h"
#include "state.h"

namespace hp {

// What a caller wants registered: stretches of whole pages, in order, under one base.
struct Region {
  uint64_t base;
  uint64_t len;  // from the base to the end of the last range
  std::span<const Extent> stretches;
  std::span<const Extent> inner;  // the pages that lie wholly in the ranges
  uint32_t flags;
  bool required() const noexcept { return flags & HP_REGISTER_REQUIRED; }
};

int32_t register_region(State &state, const Region &region, Report &report);
int32_t unregister(State &state, uint64_t base, Report &report);
int32_t unregister_all(State &state, uint64_t timeout_ns, Report &report);
int32_t device_pointer(State &state, uint64_t ptr, uint64_t &device, Report &report);

// ---- The parts of that course, for job.cpp, which does the same chunk by chunk.

// Where no backend is usable.
int32_t unavailable(State &state, const Selection &s, const Region &region, Report &report);

// A region of many segments that is not all mapped is not even set aside. True if it is such, with the status for it.
bool is_hopeless(State &state, const Selection &s, const Region &region, int32_t &status, Report &report);

// Sets the pages aside. HP_OK with a registration: to be pinned; without one: it was registered before, and is counted.
// Gives up waiting for other threads' work on the same pages when `stop` is set.
int32_t reserve(State &state, const Selection &s, const Region &region, uint64_t limit, const std::atomic<bool> *stop,
                Task &work, Report &report);

// How far the pinning of one registration is.
struct Course {
  State &state;
  const Selection &selection;
  uint32_t flags;
  Task work;
  unsigned refusals = 0;          // that were answered with smaller segments
  uint64_t largest = UINT64_MAX;  // segment that is still tried after these
  uint64_t align = 0;             // and the multiples at which it is cut, so that no huge page lies in two
  uint64_t from = 0;              // what lies before is pinned
  uint64_t bytes = 0;             // that it has pinned
  Outcome outcome{};              // of the last driver call
  std::atomic<bool> huge_pages_slow{false};  // so that they are not asked for any more
};

// Pins one segment of what is set aside, or makes it smaller after a refusal that this may help against.
enum class Step { done, pinned, again, refused };
Step pin_step(Course &course, Report &report);

// What HP_REGISTER_DONTFORK asks for, of the pages before `end` only: before the first is pinned, as a fork meanwhile would
// copy what is. And its end, after the last is released.
void leave_out_of_children(State &state, const Region &region, Registration &r, uint64_t end = UINT64_MAX) noexcept;
void back_into_children(State &state, Registration &r) noexcept;

// Gives back to the driver what is to be released, last first.
void release_all(const Selection &s, Registry &registry, const Registration &r, Report &report);

// Logs, once for each code, that a driver holds on to memory. After settle(), since a callback may call in here again.
int32_t stuck(const Report &report) noexcept;

// Logs, once for each cause, that memory stays pageable.
void tell_of_refusal(const Outcome &outcome, const Report &report) noexcept;

// After a refusal: nothing of it stays pinned, and the caller gets the status that it asked for.
int32_t roll_back(State &state, const Selection &s, const Outcome &outcome, Registration &r, uint64_t len, bool required,
                  Report &report);

}  // namespace hp
