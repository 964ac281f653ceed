#include "registry.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "system.h"

namespace hp {

constinit Counters counters;

namespace {

constexpr size_t kMaxRecords = 65536;
constexpr uint32_t kMaxCount = 0x7fffffff;

// kReleasing: to be given back to the driver; kGoing: a thread is doing so.
enum State : uint64_t { kGoing = 0, kPinning = 1, kPinned = 2, kReleasing = 3 };

// What a segment's meta word holds. One word, so that readers always see one moment of it.
struct Meta {
  uint32_t references = 0;
  State state = kPinning;
  bool stuck = false;
  bool host_address = false;
  uint32_t flags = 0;   // HP_REGISTER_PORTABLE to HP_REGISTER_READONLY
  int32_t backend = 0;
  uint32_t serial = 0;  // tells a segment from another one that was there before

  static constexpr uint32_t kSerials = 1u << 20;

  static Meta of(uint64_t word) noexcept {
    Meta m;
    m.references = static_cast<uint32_t>(word);
    m.state = static_cast<State>(word >> 32 & 3);
    m.stuck = word >> 34 & 1;
    m.host_address = word >> 35 & 1;
    m.flags = static_cast<uint32_t>(word >> 36 & 15);
    m.backend = static_cast<int32_t>(word >> 40 & 7);
    m.serial = static_cast<uint32_t>(word >> 43) & (kSerials - 1);
    return m;
  }
  uint64_t word() const noexcept {
    return references | uint64_t{state} << 32 | uint64_t{stuck} << 34 | uint64_t{host_address} << 35 |
           uint64_t{flags & 15} << 36 | static_cast<uint64_t>(backend & 7) << 40 | uint64_t{serial} << 43;
  }
};

void add(std::atomic<uint64_t> &counter, uint64_t n) noexcept { counter.fetch_add(n, std::memory_order_relaxed); }
void subtract(std::atomic<uint64_t> &counter, uint64_t n) noexcept { counter.fetch_sub(n, std::memory_order_relaxed); }

void add_reference(SegmentTree &tree, const Segment &s) noexcept {
  Meta m = Meta::of(s.meta);
  ++m.references;
  tree.set_meta(s.start, m.word());
}

std::atomic<uint64_t> &bytes_of(bool foreign) noexcept {
  return foreign ? counters.foreign_bytes : counters.pageable_bytes;
}

}  // namespace

Extent whole_pages(uint64_t start, uint64_t len) noexcept {
  const uint64_t page = page_size();
  return {start & ~(page - 1), (start + len + page - 1) & ~(page - 1)};
}

Pages &Pages::operator=(const Pages &other) {
  if (this == &other) return *this;
  more_ = other.more_ ? std::make_unique<std::vector<Extent>>(*other.more_) : nullptr;
  first_ = other.first_;
  return *this;
}

bool Pages::operator==(const Pages &other) const noexcept {
  if (!(first_ == other.first_) || !more_ != !other.more_) return false;
  return !more_ || *more_ == *other.more_;
}

void Pages::append(const Extent &next) {
  Extent &last = more_ ? more_->back() : first_;
  if (last.end == 0) {
    last = next;
  } else if (next.start <= last.end) {
    last.end = std::max(last.end, next.end);
  } else {
    auto more = more_ ? std::move(more_) : std::make_unique<std::vector<Extent>>();
    more->push_back(next);
    more_ = std::move(more);
  }
}

void Pages::cut_at(uint64_t end) noexcept {
  while (more_ && more_->back().start >= end) {
    more_->pop_back();
    if (more_->empty()) more_.reset();
  }
  Extent &last = more_ ? more_->back() : first_;
  last.end = std::max(last.start, std::min(last.end, end));
}

uint64_t Pages::size_before(uint64_t end) const noexcept {
  uint64_t bytes = 0;
  each([&](const Extent &e) { bytes += std::max(e.start, std::min(e.end, end)) - e.start; });
  return bytes;
}

bool Pages::overlap(const Extent &range) const noexcept {
  const auto overlaps = [&](const Extent &e) { return e.start < range.end && range.start < e.end; };
  if (!more_ || overlaps(first_)) return overlaps(first_);
  const auto at = std::upper_bound(more_->begin(), more_->end(), range.start,
                                   [](uint64_t start, const Extent &e) { return start < e.end; });
  return at != more_->end() && overlaps(*at);
}

uint64_t Pages::size() const noexcept { return size_before(UINT64_MAX); }

template <class Visit>
void Registry::each(const SegmentTree &tree, const Extent &range, Visit visit) {
  Segment s;
  for (uint64_t at = range.start; at < range.end && tree.find(at, s, true) && s.start < range.end; at = s.end) visit(s);
}

void Registry::wait(std::unique_lock<std::mutex> &lock) {
  ++waiting_;
  changed_.wait(lock);
  --waiting_;
}

void Registry::wake() noexcept {
  if (waiting_) changed_.notify_all();
}

void Registry::look_again() noexcept {
  const std::lock_guard lock(mutex_);
  wake();
}

// ---- Registering

// What others have of some pages.
struct Registry::Overlap {
  unsigned segments = 0;
  uint64_t bytes = 0;
  bool busy = false;       // some of it is being pinned or released
  bool too_often = false;  // some of it cannot be counted any higher
};

Registry::Overlap Registry::overlap(const Pages &pages) const noexcept {
  Overlap o;
  pages.each([&](const Extent &range) {
    each(segments_, range, [&](const Segment &s) {
      const Meta m = Meta::of(s.meta);
      ++o.segments;
      o.bytes += std::min(s.end, range.end) - std::max(s.start, range.start);
      o.busy = o.busy || m.state != kPinned;
      o.too_often = o.too_often || m.references >= kMaxCount;
    });
  });
  return o;
}

Registry::Reserve Registry::reserve(const Request &request, const Limits &limits, Task &out, Report &report) {
  std::unique_lock lock(mutex_);
  Overlap others;
  Map::iterator it;
  for (;;) {
    if (request.stop && *request.stop) return Reserve::stopped;
    it = registrations_.lower_bound(request.base);
    const bool known = it != registrations_.end() && it->first == request.base;
    const bool busy = known && it->second.busy;
    const Kind kind = known && !busy ? it->second.kind : Kind::none;
    if ((kind == Kind::pinned || kind == Kind::stuck) &&
        (it->second.len != request.len || it->second.pages != request.pages)) {
      report.text.add("%#llx is registered with %s (%llu bytes, not %llu); unregister it first",
                      static_cast<unsigned long long>(request.base),
                      it->second.len == request.len ? "other ranges" : "another length",
                      static_cast<unsigned long long>(it->second.len), static_cast<unsigned long long>(request.len));
      return Reserve::exists;
    }
    if (kind == Kind::pinned) {
      Registration &r = it->second;
      if (r.count == kMaxCount) return Reserve::too_often;
      ++r.count;
      each_segment(r.pages, [&](const Segment &s) { add_reference(segments_, s); });
      return Reserve::counted;
    }
    others = overlap(request.pages);
    if (others.too_often) return Reserve::too_often;
    if (!others.busy && !busy) break;
    wait(lock);
  }
  const uint64_t fresh = request.pages.size() - others.bytes;
  if (limits.budget && fresh && (reserved_ > limits.budget || fresh > limits.budget - reserved_)) {
    report.text.add("%llu more bytes would be pinned, %llu are, the budget is %llu; no driver was called",
                    static_cast<unsigned long long>(fresh), static_cast<unsigned long long>(reserved_),
                    static_cast<unsigned long long>(limits.budget));
    return Reserve::over_budget;
  }
  it = registrations_.try_emplace(it, request.base);
  Registration &r = it->second;
  r.base = request.base;
  Pages pages;
  try {
    pages = request.pages;
    if (r.kind == Kind::foreign && !(r.pages == pages)) recorded_.emplace(r.base, r.pages);
    add_segments(request, limits);
  } catch (...) {
    recorded_.erase(request.base);
    if (r.kind == Kind::none) registrations_.erase(it);
    throw;
  }
  if (r.kind == Kind::pageable || r.kind == Kind::foreign) unlink(r);
  r.pages = std::move(pages);
  r.busy = true;
  r.serial = ++serial_;  // now, so that who ends everything waits for this as well
  if (others.segments) share_segments(request.pages);
  out.registration = &r;
  const Extent &first = request.stretches.front();
  if (!others.segments && request.stretches.size() == 1 && first.size() <= limits.segment) out.only = first;
  return Reserve::reserved;
}

// Takes part in the segments that are pinned already.
void Registry::share_segments(const Pages &pages) noexcept {
  each_segment(pages, [&](const Segment &s) {
    Meta m = Meta::of(s.meta);
    if (m.state != kPinned) return;
    if (m.stuck) subtract(counters.stuck_segments, 1);
    m.stuck = false;  // it is wanted again
    ++m.references;
    segments_.set_meta(s.start, m.word());
  });
}

// Puts unpinned segments wherever the pages have none. All or, on bad_alloc, none.
void Registry::add_segments(const Request &request, const Limits &limits) {
  try {
    for (const Extent &stretch : request.stretches) fill_gaps(stretch, limits);
  } catch (...) {
    drop_unpinned(request.pages);
    throw;
  }
}

void Registry::fill_gaps(const Extent &range, const Limits &limits) {
  Segment s;
  for (uint64_t at = range.start; at < range.end;) {
    const bool any = segments_.find(at, s, true) && s.start < range.end;
    if (any && s.start <= at) {
      at = s.end;
      continue;
    }
    uint64_t end = any ? s.start : range.end;
    if (end - at > limits.segment) {
      end = at + limits.segment;
      if (end / limits.align * limits.align > at) end = end / limits.align * limits.align;
    }
    Meta m;
    m.references = 1;
    m.serial = segment_serial_++ % Meta::kSerials;
    segments_.insert({at, end, m.word(), 0});
    reserved_ += end - at;
    at = end;
  }
}

// Takes a segment out of the table.
void Registry::drop(uint64_t start) noexcept {
  Segment s;
  if (!segments_.find(start, s)) return;
  segments_.erase(s.start);
  reserved_ -= s.end - s.start;
  const Meta m = Meta::of(s.meta);
  if (m.state == kPinning) return;
  if (m.stuck) subtract(counters.stuck_segments, 1);
  subtract(counters.segments, 1);
  subtract(counters.pinned_bytes, s.end - s.start);
}

void Registry::drop_unpinned(const Pages &pages) noexcept {
  Extent unpinned;
  while (first_unpinned(pages, unpinned.end, unpinned)) drop(unpinned.start);
}

bool Registry::first_unpinned(const Pages &pages, uint64_t from, Extent &out) const noexcept {
  return pages.any_after(from, [&](const Extent &range) {
    Segment s;
    for (uint64_t at = std::max(range.start, from); at < range.end && segments_.find(at, s, true) && s.start < range.end;
         at = s.end) {
      if (s.start < from || Meta::of(s.meta).state != kPinning) continue;
      out = {s.start, s.end};
      return true;
    }
    return false;
  });
}

bool Registry::next_unpinned(const Registration &r, Extent &out, uint64_t from) noexcept {
  std::lock_guard lock(mutex_);
  return first_unpinned(r.pages, from, out);
}

uint64_t Registry::unpinned_bytes(const Registration &r) noexcept {
  std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  each_segment(r.pages, [&](const Segment &s) { bytes += Meta::of(s.meta).state == kPinning ? s.end - s.start : 0; });
  return bytes;
}

bool Registry::cut(const Extent &segment, uint64_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  Segment s;
  if (!segments_.find(segment.start, s)) return false;
  try {
    segments_.insert({s.start + bytes, s.end, s.meta, s.device});
  } catch (const std::bad_alloc &) {
    return false;
  }
  segments_.set_end(s.start, s.start + bytes);
  return true;
}

void Registry::pinned(const Extent &segment, const Pinned &result, int32_t backend, uint32_t flags) noexcept {
  std::lock_guard lock(mutex_);
  Segment s;
  if (!segments_.find(segment.start, s)) return;
  Meta m = Meta::of(s.meta);
  m.state = kPinned;
  m.host_address = result.host_address;
  m.backend = backend;
  m.flags = flags & 15;
  if (result.device) segments_.set_device(s.start, result.device);
  segments_.set_meta(s.start, m.word());
  add(counters.segments, 1);
  add(counters.pinned_bytes, s.end - s.start);
  const uint64_t now = counters.pinned_bytes.load(std::memory_order_relaxed);
  if (now > counters.pinned_bytes_max.load(std::memory_order_relaxed)) counters.pinned_bytes_max.store(now);
  wake();
}

void Registry::publish(Registration &r, uint64_t len, uint64_t end) noexcept {
  std::lock_guard lock(mutex_);
  r.pages.cut_at(end);
  if (r.kind == Kind::pageable || r.kind == Kind::foreign) forget_bytes(r);
  r.len = len;
  r.count = 1;
  r.kind = Kind::pinned;
  r.busy = false;
  add(counters.registrations, 1);
  wake();
}

// ---- Releasing

// Takes one reference off every pinned segment that begins between two addresses; those that have none left are to be released. If
// there is one segment in all, and it is to be, that is the answer.
Extent Registry::unreference(const Pages &pages, uint64_t from, uint64_t until) noexcept {
  Extent last;
  unsigned segments = 0;
  each_segment(pages, [&](const Segment &s) {
    Meta m = Meta::of(s.meta);
    ++segments;
    if (s.start < from || s.start >= until || m.state != kPinned || m.references == 0) return;
    if (--m.references == 0) {
      m.state = kReleasing;
      last = {s.start, s.end};
    }
    segments_.set_meta(s.start, m.word());
  });
  return segments == 1 ? last : Extent{};
}

void Registry::abandon(Registration &r) noexcept {
  std::lock_guard lock(mutex_);
  drop_unpinned(r.pages);
  unreference(r.pages, 0, UINT64_MAX);
  wake();
}

void Registry::keep_until(Registration &r, uint64_t end) noexcept {
  std::lock_guard lock(mutex_);
  drop_unpinned(r.pages);
  unreference(r.pages, end, UINT64_MAX);
  wake();
}

// What lies behind is others' by now, and may be pinned by them.
void Registry::abandon_kept(Registration &r, uint64_t end) noexcept {
  std::lock_guard lock(mutex_);
  unreference(r.pages, 0, end);
  wake();
}

void Registry::take_references(const Registration &r, uint32_t n) noexcept {
  if (n == 0) return;
  each_segment(r.pages, [&](const Segment &s) {
    Meta m = Meta::of(s.meta);
    m.references -= std::min(m.references, n);
    segments_.set_meta(s.start, m.word());
  });
}

Registry::Release Registry::begin_release(uint64_t base, bool whatever_count, Task &out, Report &report) {
  std::unique_lock lock(mutex_);
  Map::iterator it;
  while ((it = registrations_.find(base)) != registrations_.end() && it->second.busy) wait(lock);
  if (it == registrations_.end()) {
    explain_not_found(base, report);
    return Release::not_found;
  }
  Registration &r = it->second;
  if (r.kind == Kind::pinned) take_references(r, whatever_count ? r.count - 1 : r.count > 1 ? 1 : 0);
  if (r.count > 1 && !whatever_count) {
    --r.count;
    return Release::ended;
  }
  if (r.kind == Kind::pageable || r.kind == Kind::foreign) {
    forget(it);
    return Release::ended;
  }
  r.busy = true;
  out.registration = &r;
  if (r.kind == Kind::pinned) {
    out.only = unreference(r.pages, 0, UINT64_MAX);
    if (out.only.size() != 0) mark_going(out.only);
    subtract(counters.registrations, 1);
    r.kind = Kind::none;
    return Release::release;
  }
  each_segment(r.pages, [&](const Segment &s) {
    Meta m = Meta::of(s.meta);
    if (!m.stuck || m.state != kPinned) return;
    m.state = kReleasing;
    segments_.set_meta(s.start, m.word());
  });
  return Release::release;
}

void Registry::explain_not_found(uint64_t base, Report &report) const {
  report.text.add("no registration has the base %#llx", static_cast<unsigned long long>(base));
  auto it = registrations_.upper_bound(base);
  // Far back enough for any sane nesting; this is only for the message.
  for (int i = 0; i < 256 && it != registrations_.begin(); ++i) {
    const Registration &r = (--it)->second;
    if (base - r.base >= r.len) continue;
    report.text.add("; it lies in the registration with base %#llx (%llu bytes)", static_cast<unsigned long long>(r.base),
                    static_cast<unsigned long long>(r.len));
    return;
  }
}

// It is the calling thread's to release from now on.
void Registry::mark_going(const Extent &segment) noexcept {
  Segment s;
  if (!segments_.find(segment.start, s)) return;
  Meta m = Meta::of(s.meta);
  m.state = kGoing;
  segments_.set_meta(s.start, m.word());
}

// A segment goes to one thread only, though it may lie in the ranges of several that are being released. None of them is
// released before it is gone: what others took meanwhile is seen in a last look over all.
bool Registry::last_releasing(const Registration &r, Extent &out) noexcept {
  const Extent bounds = r.pages.bounds();
  std::unique_lock lock(mutex_);
  for (uint64_t before = out.end ? out.start : bounds.end;;) {
    const bool all = before == bounds.end;
    bool going = false;
    for (Segment s; segments_.last_before(before, s) && s.end > bounds.start; before = s.start) {
      const State state = Meta::of(s.meta).state;
      if (state == kPinning || state == kPinned || !r.pages.overlap({s.start, s.end})) continue;
      going = going || state == kGoing;
      if (state != kReleasing) continue;
      out = {s.start, s.end};
      mark_going(out);
      return true;
    }
    before = bounds.end;
    if (!all) continue;
    if (!going) return false;
    wait(lock);
  }
}

void Registry::released(const Extent &segment) noexcept {
  std::lock_guard lock(mutex_);
  drop(segment.start);
  wake();
}

void Registry::stuck(const Extent &segment) noexcept {
  std::lock_guard lock(mutex_);
  Segment s;
  if (!segments_.find(segment.start, s)) return;
  Meta m = Meta::of(s.meta);
  if (!m.stuck) add(counters.stuck_segments, 1);
  m.stuck = true;
  m.state = kPinned;
  segments_.set_meta(s.start, m.word());
  wake();
}

bool Registry::has_stuck(const Pages &pages) const noexcept {
  bool stuck = false;
  each_segment(pages, [&](const Segment &s) { stuck = stuck || Meta::of(s.meta).stuck; });
  return stuck;
}

bool Registry::any_stuck(const Registration &r) noexcept {
  std::lock_guard lock(mutex_);
  return has_stuck(r.pages);
}

bool Registry::settle(Registration &r, uint64_t len, Kind kind) noexcept {
  std::lock_guard lock(mutex_);
  const bool stuck = has_stuck(r.pages);
  r.busy = false;
  const bool record = r.kind == Kind::pageable || r.kind == Kind::foreign;
  if (stuck) {
    if (record) forget_bytes(r);
    r.kind = Kind::stuck;
    r.len = len;
    r.count = 1;
    r.serial = ++serial_;
  } else if (kind != Kind::none) {
    keep_record(r, len, kind);
  } else if (record) {
    if (auto of_record = recorded_.extract(r.base)) r.pages = std::move(of_record.mapped());
    link(r);  // a failed attempt that leaves no record leaves the older one as it was
  } else {
    registrations_.erase(registrations_.find(r.base));
  }
  wake();
  return !stuck;
}

void Registry::forget_released(Registration &r) noexcept {
  std::lock_guard lock(mutex_);
  registrations_.erase(registrations_.find(r.base));
  wake();
}

// ---- Records of what is not pinned by us

bool Registry::record(uint64_t base, uint64_t len, Kind kind) {
  std::unique_lock lock(mutex_);
  for (;;) {
    Registration &r = registrations_[base];
    if (r.busy) {
      wait(lock);
      continue;
    }
    if (r.kind == Kind::pinned || r.kind == Kind::stuck) return false;
    if (r.kind == Kind::pageable || r.kind == Kind::foreign) unlink(r);
    r.base = base;
    r.serial = ++serial_;
    keep_record(r, len, kind);
    return true;
  }
}

// The record must not be in the list of the forgettable ones.
void Registry::keep_record(Registration &r, uint64_t len, Kind kind) noexcept {
  const bool again = r.kind == kind && r.len == len && !recorded_.contains(r.base) && r.count < kMaxCount;
  if (again) {
    ++r.count;
  } else {
    if (r.kind == Kind::pageable || r.kind == Kind::foreign) forget_bytes(r);
    r.kind = kind;
    r.len = len;
    r.count = 1;
    add(bytes_of(kind == Kind::foreign), len);
    if (kind == Kind::foreign) cover(r);
  }
  link(r);
  if (records_ > kMaxRecords) forget(registrations_.find(oldest_->base));
}

void Registry::forget_bytes(Registration &r) noexcept {
  subtract(bytes_of(r.kind == Kind::foreign), r.len);
  const auto recorded = recorded_.find(r.base);
  const Pages &pages = recorded == recorded_.end() ? r.pages : recorded->second;
  if (r.kind == Kind::foreign) pages.each([&](const Extent &e) { foreign_.remove(e, [](const Extent &) {}); });
  if (recorded != recorded_.end()) recorded_.erase(recorded);
}

void Registry::forget(Map::iterator it) noexcept {
  unlink(it->second);
  forget_bytes(it->second);
  registrations_.erase(it);
}

void Registry::link(Registration &r) noexcept {
  r.older = newest_;
  r.newer = nullptr;
  (newest_ ? newest_->newer : oldest_) = &r;
  newest_ = &r;
  ++records_;
}

void Registry::unlink(Registration &r) noexcept {
  (r.older ? r.older->newer : oldest_) = r.newer;
  (r.newer ? r.newer->older : newest_) = r.older;
  r.older = r.newer = nullptr;
  --records_;
}

// Where there is no memory for it a query finds the rest pageable, which is the safe answer.
void Registry::cover(Registration &r) noexcept {
  uint64_t end = 0;
  try {
    r.pages.each([&](const Extent &e) {
      foreign_.add(e);
      end = e.end;
    });
  } catch (const std::bad_alloc &) {
    r.pages.cut_at(end);  // what is taken away again later
  }
}

bool Registry::next_to_end(const std::atomic<uint64_t> &newest, uint64_t &base) noexcept {
  std::unique_lock lock(mutex_);
  while (true) {
    const bool all = base == UINT64_MAX;
    bool busy = false;
    for (auto it = registrations_.lower_bound(base); it != registrations_.begin();) {
      const Registration &r = (--it)->second;
      if (r.serial > newest) continue;
      base = r.base;
      if (!r.busy) return true;
      busy = true;
    }
    if (all && !busy) return false;
    if (all) wait(lock);
    base = UINT64_MAX;
  }
}

uint64_t Registry::newest() noexcept {
  std::lock_guard lock(mutex_);
  return serial_;
}

bool Registry::empty() noexcept {
  std::lock_guard lock(mutex_);
  return registrations_.empty();
}

// ---- Asking

bool Registry::query(uint64_t ptr, uint64_t len, hp_region *out) const noexcept {
  const uint64_t end = ptr + len;
  Segment s;
  for (uint64_t at = ptr; at < end; at = s.end) {
    const bool ours = segments_.find(at, s) && Meta::of(s.meta).state == kPinned;
    if (!ours && !find_foreign(at, s)) return false;
    if (!out || at != ptr) continue;
    const Meta m = Meta::of(s.meta);
    out->backend = ours ? m.backend : HP_BACKEND_NONE;
    out->start = s.start;
    out->end = s.end;
    out->flags = m.flags;
    out->references = m.references;
    out->one_segment = end <= s.end;
    out->host_address = m.host_address;
    out->stuck = m.stuck;
    out->foreign = !ours;
  }
  return true;
}

bool Registry::find_foreign(uint64_t at, Segment &s) const noexcept {
  Extent range;
  uint64_t count = 0;
  if (!foreign_.find(at, range, count)) return false;
  Meta m;
  m.references = static_cast<uint32_t>(count);
  s = {range.start, range.end, m.word(), 0};
  return true;
}

uint64_t Registry::border_after(uint64_t ptr) const noexcept {
  return std::min(segments_.border_after(ptr), foreign_.border_after(ptr));
}

bool Registry::device(uint64_t ptr, Extent &segment, uint64_t &device, uint32_t &serial) const noexcept {
  Segment s;
  if (!segments_.find(ptr, s)) return false;
  const Meta m = Meta::of(s.meta);
  segment = {s.start, s.end};
  device = s.device;
  serial = m.serial;
  return m.state == kPinned;
}

void Registry::keep_device(const Extent &segment, uint32_t serial, uint64_t device) noexcept {
  std::lock_guard lock(mutex_);
  Segment s;
  if (segments_.find(segment.start, s) && s.start == segment.start && Meta::of(s.meta).serial == serial)
    segments_.set_device(s.start, device);
}

}  // namespace hp
