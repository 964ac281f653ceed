// Thousands of random steps with a driver that refuses now and then, against a plain model: after each step the library's
// table, the simulated driver's and the model agree page by page.
#include <algorithm>
#include <map>
#include <random>

#include "register_test.h"

using namespace test;

namespace {

constexpr size_t kPages = 24;

enum class Kind { pinned, pageable, foreign, stuck };

struct Registration {
  size_t len;
  Kind kind;
  uint32_t count;
};

class Model {
public:
  Model(unsigned seed, bool failing) : random_(seed), failing_(failing), memory_(kPages * page()) {}
  ~Model() { hps_unpin_foreign(vendor(), memory_.page_at(foreign_first_)); }

  void step() {
    switch (random_() % 16) {
      case 0: toggle_foreign(); break;
      case 1: unregister(random_offset()); break;
      case 2:
      case 3:
      case 4:
      case 5:
      case 6:
        if (!known_.empty()) {
          unregister(random_known());
          break;
        }
        [[fallthrough]];
      case 7:
      case 8:
        if (!known_.empty()) {
          const size_t offset = random_known();
          register_range(offset, random_() % 8 ? known_.at(offset).len : random_len(offset));
          break;
        }
        [[fallthrough]];
      default: {
        const size_t offset = random_offset();
        register_range(offset, random_len(offset));
      }
    }
    check();
  }

  // Ends all there is, trying again where the driver would not.
  void finish() {
    while (!known_.empty()) unregister(known_.begin()->first);
    check();
  }

private:
  size_t random_offset() {
    // Few different ones, so that they meet.
    static const size_t inside[] = {0, 0, 1, 100};
    return random_() % kPages * page() + inside[random_() % 4];
  }
  size_t random_len(size_t offset) {
    const size_t most = std::min(memory_.size() - offset, 7 * page());
    const size_t len = 1 + random_() % most;
    return random_() % 2 ? len : std::max(page(), len / page() * page()) > most ? len : std::max(page(), len / page() * page());
  }
  size_t random_known() {
    auto it = known_.begin();
    std::advance(it, random_() % known_.size());
    return it->first;
  }

  bool foreign_page(size_t p) const { return foreign_ && p >= foreign_first_ && p < foreign_first_ + foreign_pages_; }

  void toggle_foreign() {
    if (foreign_) {
      REQUIRE(hps_unpin_foreign(vendor(), memory_.page_at(foreign_first_)) == 0);
      foreign_ = false;
      return;
    }
    foreign_first_ = random_() % (kPages - 3);
    foreign_pages_ = 1 + random_() % 3;
    foreign_ = hps_pin_foreign(vendor(), memory_.page_at(foreign_first_), foreign_pages_ * page()) == 0;
  }

  void register_range(size_t offset, size_t len) {
    const uint32_t flags = random_() % 2 ? HP_REGISTER_REQUIRED : 0;
    const auto it = known_.find(offset);
    const bool live = it != known_.end() && (it->second.kind == Kind::pinned || it->second.kind == Kind::stuck);
    const uint64_t calls = hps_calls("register");
    const int32_t status = hp_register(memory_.at(offset), len, flags);
    CAPTURE(offset, len, status);
    if (live && it->second.len != len) {
      REQUIRE(status == HP_E_EXISTS);
      REQUIRE(hps_calls("register") == calls);
      return;
    }
    if (live && it->second.kind == Kind::pinned) {
      REQUIRE(status == HP_OK);
      REQUIRE(hps_calls("register") == calls);
      ++it->second.count;
      return;
    }
    switch (status) {
      case HP_OK: known_[offset] = {len, Kind::pinned, 1}; break;
      case HP_PAGEABLE:
        REQUIRE(!flags);
        keep(offset, len, Kind::pageable);
        break;
      case HP_FOREIGN:
        for (size_t p = offset / page(); p <= (offset + len - 1) / page(); ++p) REQUIRE(foreign_page(p));
        keep(offset, len, Kind::foreign);
        break;
      case HP_E_REFUSED:
        REQUIRE(flags);
        if (live) known_.erase(it);  // what was stuck has been released on the way
        break;
      case HP_E_STUCK:
        REQUIRE(failing_);
        known_[offset] = {len, Kind::stuck, 1};
        break;
      default: FAIL("status " << status);
    }
    if (!failing_ && status != HP_OK) {
      bool any_foreign = false;
      for (size_t p = offset / page(); p <= (offset + len - 1) / page(); ++p) any_foreign = any_foreign || foreign_page(p);
      REQUIRE(any_foreign);
    }
  }

  void keep(size_t offset, size_t len, Kind kind) {
    const auto it = known_.find(offset);
    if (it != known_.end() && it->second.kind == kind && it->second.len == len)
      ++it->second.count;
    else
      known_[offset] = {len, kind, 1};
  }

  void unregister(size_t offset) {
    const auto it = known_.find(offset);
    const int32_t status = hp_unregister(memory_.at(offset));
    CAPTURE(offset, status);
    if (it == known_.end()) {
      REQUIRE(status == HP_E_NOT_FOUND);
    } else if (it->second.count > 1) {
      REQUIRE(status == HP_OK);
      --it->second.count;
    } else if (status == HP_E_STUCK) {
      REQUIRE(failing_);
      REQUIRE((it->second.kind == Kind::pinned || it->second.kind == Kind::stuck));
      it->second.kind = Kind::stuck;
    } else {
      REQUIRE(status == HP_OK);
      known_.erase(it);
    }
  }

  void check() const {
    uint32_t covered[kPages] = {};
    bool said_foreign[kPages] = {};
    uint64_t registrations = 0, pageable = 0, foreign = 0;
    for (const auto &[offset, r] : known_) {
      registrations += r.kind == Kind::pinned;
      pageable += r.kind == Kind::pageable ? r.len : 0;
      foreign += r.kind == Kind::foreign ? r.len : 0;
      for (size_t p = offset / page(); p <= (offset + r.len - 1) / page(); ++p) {
        if (r.kind == Kind::pinned) covered[p] += r.count;
        said_foreign[p] = said_foreign[p] || r.kind == Kind::foreign;
      }
    }
    uint64_t segments = 0, pinned_pages = 0, stuck = 0;
    bool ours[kPages] = {};
    for (const hps_registration &s : pinned_by_driver()) {
      if (s.kind == HPS_FOREIGN) continue;
      if (s.kind != HPS_REGISTERED) FAIL("a registration that nobody can release");
      const size_t first = (reinterpret_cast<uintptr_t>(s.ptr) - memory_.address()) / page();
      const size_t count = s.length / page();
      ++segments;
      pinned_pages += count;
      uint32_t references = 0;
      bool needed = false;
      for (size_t p = first; p < first + count; ++p) {
        ours[p] = true;
        needed = needed || covered[p] > 0;
      }
      for (const auto &[offset, r] : known_)
        if (r.kind == Kind::pinned && offset / page() < first + count && (offset + r.len - 1) / page() >= first)
          references += r.count;
      const hp_region found = region(s.ptr, s.length);
      stuck += found.stuck;
      if (found.start != memory_.address(first * page()) || found.end != memory_.address((first + count) * page()))
        FAIL("the segment at page " << first << " is not the driver's");
      if (found.references != references) FAIL("page " << first << ": " << found.references << ", not " << references);
      if (found.foreign || (!needed && !found.stuck) || (needed && found.stuck)) FAIL("page " << first << " is held for nobody");
    }
    for (size_t p = 0; p < kPages; ++p) {
      if (covered[p] && !ours[p]) FAIL("page " << p << " is not pinned for who registered it");
      const int32_t answer = hp_query(memory_.page_at(p), page(), nullptr);
      if (ours[p] && answer != HP_OK) FAIL("the query does not know page " << p);
      if (!ours[p] && answer == HP_OK && foreign == 0) FAIL("the query makes page " << p << " up");
      if (said_foreign[p] && answer != HP_OK) FAIL("the foreign page " << p << " is forgotten");
    }
    const hp_stats s = stats();
    if (s.registrations != registrations) FAIL("registrations: " << s.registrations << ", not " << registrations);
    if (s.segments != segments) FAIL("segments: " << s.segments << ", not " << segments);
    if (s.stuck_segments != stuck) FAIL("stuck: " << s.stuck_segments << ", not " << stuck);
    if (s.pinned_bytes != pinned_pages * page()) FAIL("bytes: " << s.pinned_bytes << ", not " << pinned_pages * page());
    if (s.pageable_bytes != pageable) FAIL("pageable: " << s.pageable_bytes << ", not " << pageable);
    if (s.foreign_bytes != foreign) FAIL("foreign: " << s.foreign_bytes << ", not " << foreign);
    // A stuck segment belongs to somebody who can try again.
    bool any_stuck = false;
    for (const auto &[offset, r] : known_) any_stuck = any_stuck || r.kind == Kind::stuck;
    if (stuck && !any_stuck) FAIL("a stuck segment that nobody can end");
  }

  std::mt19937 random_;
  bool failing_;
  Memory memory_;
  std::map<size_t, Registration> known_;  // by offset
  bool foreign_ = false;
  size_t foreign_first_ = 0, foreign_pages_ = 0;
};

}  // namespace

TEST_CASE("random steps") {
  const bool failing = GENERATE(false, true);
  const unsigned seed = GENERATE(range(1u, 5u));
  CAPTURE(failing, seed);
  const Fresh fresh("maps=0,trace=1,seed=" + std::to_string(seed) +
                    (failing ? ",random=register:0.08:801,random=register:0.04:1,random=unregister:0.1:1" : ""));
  {
    Model model(seed, failing);
    for (int i = 0; i < 3000; ++i) model.step();
    model.finish();
  }
  // Never a release of what was not pinned, and nothing given to the driver twice.
  for (const hps_call &call : trace()) {
    if (is_unregister(call) && call.code != 0 && call.code != 1) FAIL("a release answered with " << call.code);
    if (is_unregister(call) && call.code == 1 && !failing) FAIL("a release of an inner address");
  }
}
