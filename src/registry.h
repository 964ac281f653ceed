// What is registered and which pages are pinned for it. Knows nothing of drivers: pin.cpp asks it what to do, calls the
// driver with no lock held, and says what became of it.
#pragma once
#include <hostpin.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend.h"
#include "counted_ranges.h"
#include "error.h"
#include "fork_exclusion.h"
#include "segment_tree.h"

namespace hp {

// Readable at any time without a lock; hp_get_stats() copies them out.
struct Counters {
  std::atomic<uint64_t> registrations{0}, segments{0}, stuck_segments{0};
  std::atomic<uint64_t> pinned_bytes{0}, pinned_bytes_max{0}, pageable_bytes{0}, foreign_bytes{0};
  std::atomic<uint64_t> vendor_calls{0}, vendor_ns{0}, vendor_ns_max{0};
  std::atomic<uint64_t> failed_invalid{0}, failed_memory{0}, failed_foreign{0}, failed_unsupported{0};
  std::atomic<uint64_t> failed_capture{0}, failed_device{0}, failed_release{0}, failed_other{0};
};
extern Counters counters;

Extent whole_pages(uint64_t start, uint64_t len) noexcept;  // end is 0 when it would wrap

// The pages of a registration: one stretch, or several in order that do not touch.
class Pages {
public:
  Pages() = default;
  explicit Pages(const Extent &only) noexcept : first_(only) {}
  void append(const Extent &next);  // not before the last one
  void cut_at(uint64_t end) noexcept;
  uint64_t size_before(uint64_t end) const noexcept;
  Pages(const Pages &other) { *this = other; }
  Pages &operator=(const Pages &other);
  Pages(Pages &&) = default;
  Pages &operator=(Pages &&) = default;
  bool operator==(const Pages &other) const noexcept;
  uint64_t size() const noexcept;
  bool overlap(const Extent &range) const noexcept;
  Extent bounds() const noexcept { return {first_.start, more_ ? more_->back().end : first_.end}; }
  template <class Visit>
  void each(Visit visit) const {
    visit(first_);
    if (more_)
      for (const Extent &e : *more_) visit(e);
  }
  // Whether it is so of one that ends after an address; the first such one is the last that is asked.
  template <class Ask>
  bool any_after(uint64_t address, Ask ask) const {
    if (first_.end > address && ask(first_)) return true;
    if (!more_) return false;
    const auto ends_before = [&](const Extent &e) { return e.end <= address; };
    return std::any_of(std::partition_point(more_->begin(), more_->end(), ends_before), more_->end(), ask);
  }

private:
  Extent first_;
  std::unique_ptr<std::vector<Extent>> more_;  // mostly none, and there may be many registrations
};

enum class Kind : uint8_t { none, pinned, pageable, foreign, stuck };

// What is known under one base. While `busy` one thread is at work on it without the lock, and others that want it wait.
struct Registration {
  uint64_t base = 0;
  uint64_t len = 0;
  Pages pages;
  uint64_t serial = 0;
  std::unique_ptr<std::vector<Extent>> not_in_children;  // pages that fork leaves out while this lives
  // Records that may be forgotten, in order of age.
  Registration *older = nullptr;
  Registration *newer = nullptr;
  uint32_t count = 0;
  Kind kind = Kind::none;
  bool busy = false;
};

// A registration to pin or to release. In the usual case it is one segment, which then need not be looked up again.
struct Task {
  Registration *registration = nullptr;
  Extent only;  // that segment; empty where there may be others
};

class Registry {
public:
  ForkExclusion fork_exclusion;

  // What is to be registered: base and length as the caller gave them, the pages of it, and the stretches (of the same
  // pages) that get segments of their own.
  struct Request {
    uint64_t base;
    uint64_t len;
    Pages pages;
    std::span<const Extent> stretches;
    const std::atomic<bool> *stop = nullptr;  // gives up waiting for others once this is set; look_again() tells
  };
  struct Limits {
    uint64_t segment;  // bytes in one segment at most, whole pages
    uint64_t align;    // cuts are made at multiples of this where the limit allows it
    uint64_t budget;   // bytes that may be pinned; 0: no limit
  };

  // ---- Registering. After reserve() returned kReserved the caller pins what next_unpinned() gives until there is no
  // more, telling each with pinned(), and then calls publish(). When the driver refuses it calls abandon() or
  // keep_until(), releases what last_releasing() gives, and then calls settle() or publish().
  enum class Reserve { counted, reserved, exists, over_budget, too_often, stopped };
  Reserve reserve(const Request &request, const Limits &limits, Task &out, Report &report);
  void look_again() noexcept;
  bool next_unpinned(const Registration &r, Extent &out, uint64_t from = 0) noexcept;
  uint64_t unpinned_bytes(const Registration &r) noexcept;
  bool cut(const Extent &segment, uint64_t bytes) noexcept;  // makes two of an unpinned one; false without memory for it
  void pinned(const Extent &segment, const Pinned &result, int32_t backend, uint32_t flags) noexcept;
  void publish(Registration &r, uint64_t len, uint64_t end = UINT64_MAX) noexcept;  // with the pages before `end`
  void abandon(Registration &r) noexcept;
  void keep_until(Registration &r, uint64_t end) noexcept;  // gives up the pages from `end` on
  void abandon_kept(Registration &r, uint64_t end) noexcept;  // and after that the others as well
  bool any_stuck(const Registration &r) noexcept;

  // Ends what was begun once there is nothing left to release: with a record of `kind`, or none. False: some of it is
  // stuck, and stays known as that.
  bool settle(Registration &r, uint64_t len, Kind kind) noexcept;
  void forget_released(Registration &r) noexcept;  // the same where nothing can be stuck and no record is wanted

  // A registration for which no driver was asked.
  bool record(uint64_t base, uint64_t len, Kind kind);  // false: the base is pinned, and stays so

  // ---- Releasing. After begin_release() returned kRelease the caller unpins what last_releasing() gives, last first,
  // telling each with released() or stuck(), and then calls settle() with Kind::none.
  enum class Release { ended, release, not_found };
  Release begin_release(uint64_t base, bool whatever_count, Task &out, Report &report);
  bool last_releasing(const Registration &r, Extent &out) noexcept;  // `out`: the one before, or empty at first
  void released(const Extent &segment) noexcept;
  void stuck(const Extent &segment) noexcept;

  // Goes to the next registration to be ended, from high bases to low ones: one that is not newer than `newest`, nor busy.
  // Begins again at the top, and waits where all that are left are busy; look_again() tells of another `newest`. False:
  // none is left.
  bool next_to_end(const std::atomic<uint64_t> &newest, uint64_t &base) noexcept;
  uint64_t newest() noexcept;
  bool empty() noexcept;

  // ---- Asking; without a lock.
  bool query(uint64_t ptr, uint64_t len, hp_region *out) const noexcept;
  uint64_t border_after(uint64_t ptr) const noexcept;  // of segments; UINT64_MAX if there is none
  // The segment of ours that holds ptr, and its device address, 0 if it was not asked for yet.
  bool device(uint64_t ptr, Extent &segment, uint64_t &device, uint32_t &serial) const noexcept;
  void keep_device(const Extent &segment, uint32_t serial, uint64_t device) noexcept;

private:
  using Map = std::map<uint64_t, Registration>;

  template <class Visit>
  static void each(const SegmentTree &tree, const Extent &range, Visit visit);
  template <class Visit>
  void each_segment(const Pages &pages, Visit visit) const {
    pages.each([&](const Extent &range) { each(segments_, range, visit); });
  }
  void wait(std::unique_lock<std::mutex> &lock);
  void wake() noexcept;
  struct Overlap;
  Overlap overlap(const Pages &pages) const noexcept;
  void add_segments(const Request &request, const Limits &limits);
  void fill_gaps(const Extent &range, const Limits &limits);
  void drop(uint64_t start) noexcept;
  void drop_unpinned(const Pages &pages) noexcept;
  void mark_going(const Extent &segment) noexcept;
  void share_segments(const Pages &pages) noexcept;
  bool has_stuck(const Pages &pages) const noexcept;
  Extent unreference(const Pages &pages, uint64_t from, uint64_t until) noexcept;
  void take_references(const Registration &r, uint32_t n) noexcept;
  void explain_not_found(uint64_t base, Report &report) const;
  bool first_unpinned(const Pages &pages, uint64_t from, Extent &out) const noexcept;
  void keep_record(Registration &r, uint64_t len, Kind kind) noexcept;
  void forget(Map::iterator it) noexcept;
  void forget_bytes(Registration &r) noexcept;
  void link(Registration &r) noexcept;
  void unlink(Registration &r) noexcept;
  void cover(Registration &r) noexcept;
  bool find_foreign(uint64_t at, Segment &s) const noexcept;

  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned waiting_ = 0;
  Map registrations_;
  std::map<uint64_t, Pages> recorded_;  // by base: those of foreign records, while others are tried there
  uint64_t serial_ = 0;
  uint32_t segment_serial_ = 0;
  SegmentTree segments_;  // pinned by us, or about to be
  uint64_t reserved_ = 0;  // bytes in them
  CountedRanges foreign_;  // said to be pinned by others
  Registration *oldest_ = nullptr;
  Registration *newest_ = nullptr;
  size_t records_ = 0;
};

}  // namespace hp
