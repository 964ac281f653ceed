// libhostpin's answers, for the programs that drive it over the vendors' real libraries.
#pragma once

#include "real_check.h"

#include <hostpin.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace real {

inline hp_backend_info backend() {
  hp_backend_info info{};
  info.struct_size = sizeof info;
  CHECK_EQUAL(hp_get_backend(&info), HP_OK);
  return info;
}

inline hp_stats stats() {
  hp_stats all{};
  all.struct_size = sizeof all;
  CHECK_EQUAL(hp_get_stats(&all), HP_OK);
  return all;
}

inline hp_region region(const void *pointer, std::size_t bytes) {
  hp_region found{};
  found.struct_size = sizeof found;
  CHECK_EQUAL(hp_query(pointer, bytes, &found), HP_OK);
  return found;
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// Sends stderr into memory and gives what has come so far.
class CapturedStderr {
 public:
  CapturedStderr() {
    failures = dup(STDERR_FILENO);
    CHECK(dup2(file_, STDERR_FILENO) == STDERR_FILENO);
  }
  ~CapturedStderr() {
    dup2(failures, STDERR_FILENO);
    close(failures);
    close(file_);
    failures = STDERR_FILENO;
  }
  CapturedStderr(const CapturedStderr &) = delete;
  CapturedStderr &operator=(const CapturedStderr &) = delete;

  std::string text() const {
    std::string all(static_cast<std::size_t>(lseek(file_, 0, SEEK_END)), '\0');
    CHECK(pread(file_, all.data(), all.size(), 0) == static_cast<ssize_t>(all.size()));
    return all;
  }

  // The log lines so far: each ends in a newline, and a library that has one thing to say says it on one.
  long lines() const {
    const std::string all = text();
    CHECK(all.empty() || all.back() == '\n');
    return std::count(all.begin(), all.end(), '\n');
  }

 private:
  int file_ = memfd_create("stderr", MFD_CLOEXEC);
};

// Registers and ends ranges at random, many of which share pages, and asks the runtime each time: `pins(page)` is how
// many of its pins cover the page. Every page of a live registration must have `expected`; when all have ended, none
// has any.
class RandomRanges {
 public:
  RandomRanges(std::function<long(const char *)> pins, long expected) : pins_(std::move(pins)), expected_(expected) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      if (alive_.size() < 12 && random_() % 2 == 0)
        add();
      else if (!alive_.empty())
        remove();
      check_live_pages();
    }
    while (!alive_.empty()) remove();
    for (std::size_t i = 0; i < pages; ++i) CHECK_EQUAL(pins_(memory_ + i * page), 0);
  }

 private:
  static constexpr std::size_t pages = 32, page = 4096;
  struct Range {
    char *base;
    std::size_t bytes;
  };

  void add() {
    const std::size_t first = random_() % (pages * page), room = pages * page - first;
    const std::size_t bytes = 1 + random_() % std::min<std::size_t>(room, 8 * page);
    for (const Range &range : alive_)
      if (range.base == memory_ + first) return;
    CHECK_EQUAL(hp_register(memory_ + first, bytes, HP_REGISTER_REQUIRED), HP_OK);
    alive_.push_back({memory_ + first, bytes});
  }

  void remove() {
    const auto which = alive_.begin() + static_cast<std::ptrdiff_t>(random_() % alive_.size());
    CHECK_EQUAL(hp_unregister(which->base), HP_OK);
    alive_.erase(which);
  }

  void check_live_pages() const {
    for (const Range &range : alive_) {
      CHECK_EQUAL(hp_query(range.base, range.bytes, nullptr), HP_OK);
      const std::size_t first = static_cast<std::size_t>(range.base - memory_) / page;
      const std::size_t last = (static_cast<std::size_t>(range.base - memory_) + range.bytes - 1) / page;
      for (std::size_t i = first; i <= last; ++i) CHECK_EQUAL(pins_(memory_ + i * page), expected_);
    }
  }

  std::function<long(const char *)> pins_;
  long expected_;
  char *memory_ = map_memory(pages * page);
  std::vector<Range> alive_;
  std::mt19937 random_{12345};
};

} // namespace real
