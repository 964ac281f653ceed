// Several threads. That nothing is held during a vendor call is shown by stopping the driver inside one: what then cannot
// finish hangs, and the test with it.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <random>
#include <thread>

#include "register_test.h"

using namespace test;

namespace {

// Stops the calls of one kind for one address in the driver, as hps_block() does for all.
class Gate {
public:
  Gate(const char *what, const void *ptr) : what_(what), ptr_(ptr) { hps_on_call(&enter, this); }
  ~Gate() { open(); }
  Gate(const Gate &) = delete;
  Gate &operator=(const Gate &) = delete;
  void wait_for_call() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return inside_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

private:
  static void enter(const char *function, const void *ptr, size_t, void *user) {
    auto *gate = static_cast<Gate *>(user);
    hps_call call{};
    call.function = function;
    const bool wanted = std::string_view(gate->what_) == "register" ? is_register(call) : is_unregister(call);
    if (!wanted || ptr != gate->ptr_) return;
    std::unique_lock lock(gate->mutex_);
    gate->inside_ = true;
    gate->changed_.notify_all();
    gate->changed_.wait(lock, [&] { return gate->open_; });
  }
  const char *what_;
  const void *ptr_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool inside_ = false, open_ = false;
};

// A call on a thread of its own.
class Background {
public:
  template <class Call>
  explicit Background(Call call) : thread_([this, call] {
    status_ = call();
    done_ = true;
  }) {}
  ~Background() {
    if (thread_.joinable()) thread_.join();
  }
  bool done() const { return done_; }
  int32_t join() {
    thread_.join();
    return status_;
  }

private:
  std::atomic<int32_t> status_{INT32_MIN};
  std::atomic<bool> done_{false};
  std::thread thread_;
};

// Gives a thread that should be waiting the time to do the wrong thing. Never decides a test that goes well.
void a_moment() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

void everything_else_works(const Memory &memory, size_t pinned_page, size_t free_page) {
  hp_region out{};
  out.struct_size = sizeof(out);
  CHECK(hp_query(memory.page_at(pinned_page), page(), &out) == HP_OK);
  CHECK(hp_query(memory.page_at(free_page), page(), nullptr) == HP_PAGEABLE);
  CHECK(stats().registrations >= 1);
  CHECK(backend().device_count >= 1);
  void *device = nullptr;
  CHECK(hp_device_pointer(memory.page_at(pinned_page), &device) == HP_OK);
  CHECK(hp_register(memory.page_at(free_page), page(), 0) == HP_OK);
  CHECK(hp_register(memory.page_at(free_page), page(), 0) == HP_OK);
  CHECK(hp_register(memory.page_at(free_page), 1, 0) == HP_E_EXISTS);
  CHECK(*hp_last_error());
  CHECK(hp_unregister(memory.page_at(free_page)) == HP_OK);
  CHECK(hp_unregister(memory.page_at(free_page)) == HP_OK);
  CHECK(hp_unregister(memory.page_at(pinned_page)) == HP_OK);
  // A line of the log, whose callback asks in its turn.
  static const Memory *asked;
  static std::atomic<int> lines;
  asked = &memory;
  lines = 0;
  hp_set_log_callback(
      [](int32_t, const char *, void *) {
        ++lines;
        if (hp_query(asked->at(), 1, nullptr) < 0) std::abort();
      },
      nullptr);
  static int code = 20000;  // a cause is logged once
  fail_next("register", ++code);
  CHECK(hp_register(memory.page_at(free_page), page(), 0) == HP_PAGEABLE);
  CHECK(lines == 1);
  hp_set_log_callback(nullptr, nullptr);
  CHECK(hp_unregister(memory.page_at(free_page)) == HP_OK);
}

}  // namespace

TEST_CASE("while the driver pins, everything else goes on") {
  const Fresh fresh;
  const Memory memory(16 * page());
  REQUIRE(hp_register(memory.page_at(4), page(), 0) == HP_OK);
  Gate gate("register", memory.page_at(1));
  Background slow([&] { return hp_register(memory.page_at(1), 2 * page(), 0); });
  gate.wait_for_call();
  CHECK(hp_query(memory.page_at(1), 1, nullptr) == HP_PAGEABLE);  // not pinned yet
  everything_else_works(memory, 4, 3);                            // pages 3 and 4 touch it
  CHECK_FALSE(slow.done());
  gate.open();
  CHECK(slow.join() == HP_OK);
  CHECK(hp_unregister(memory.page_at(1)) == HP_OK);
}

TEST_CASE("while the driver releases, everything else goes on") {
  const Fresh fresh;
  const Memory memory(16 * page());
  REQUIRE(hp_register(memory.page_at(4), page(), 0) == HP_OK);
  REQUIRE(hp_register(memory.page_at(1), 2 * page(), 0) == HP_OK);
  Gate gate("unregister", memory.page_at(1));
  Background slow([&] { return hp_unregister(memory.page_at(1)); });
  gate.wait_for_call();
  CHECK(hp_query(memory.page_at(1), 1, nullptr) == HP_PAGEABLE);  // not to be relied on any more
  everything_else_works(memory, 4, 3);
  CHECK_FALSE(slow.done());
  gate.open();
  CHECK(slow.join() == HP_OK);
}

TEST_CASE("who wants pages that are being pinned waits, and does not ask the driver for them") {
  const Fresh fresh("trace=1");
  const Memory memory(16 * page());
  Gate gate("register", memory.page_at(2));
  Background first([&] { return hp_register(memory.page_at(2), 2 * page(), 0); });
  gate.wait_for_call();
  SECTION("the same range") {
    Background second([&] { return hp_register(memory.page_at(2), 2 * page(), 0); });
    a_moment();
    CHECK_FALSE(second.done());
    gate.open();
    CHECK(first.join() == HP_OK);
    CHECK(second.join() == HP_OK);
    CHECK(hps_calls("register") == 1);
    CHECK(region(memory.page_at(2), 2 * page()).references == 2);
    CHECK(hp_unregister(memory.page_at(2)) == HP_OK);
  }
  SECTION("a part of it") {
    Background second([&] { return hp_register(memory.at(3 * page() + 8), 8, 0); });
    a_moment();
    CHECK_FALSE(second.done());
    gate.open();
    CHECK(first.join() == HP_OK);
    CHECK(second.join() == HP_OK);
    CHECK(hps_calls("register") == 1);
    CHECK(hp_unregister(memory.at(3 * page() + 8)) == HP_OK);
  }
  SECTION("and more") {
    Background second([&] { return hp_register(memory.page_at(3), 3 * page(), 0); });
    a_moment();
    CHECK_FALSE(second.done());
    CHECK(hps_calls("register") == 1);
    gate.open();
    CHECK(first.join() == HP_OK);
    CHECK(second.join() == HP_OK);
    const auto made = traced(is_register);
    REQUIRE(made.size() == 2);
    CHECK(made[1].ptr == memory.page_at(4));
    CHECK(made[1].length == 2 * page());
    CHECK(hp_unregister(memory.page_at(3)) == HP_OK);
  }
  SECTION("its end") {
    Background second([&] { return hp_unregister(memory.page_at(2)); });
    a_moment();
    CHECK_FALSE(second.done());
    gate.open();
    CHECK(first.join() == HP_OK);
    CHECK(second.join() == HP_OK);
    CHECK(hps_live_registrations() == 0);
    REQUIRE(hp_register(memory.page_at(2), 2 * page(), 0) == HP_OK);
  }
  SECTION("the same base with another length") {
    Background second([&] { return hp_register(memory.page_at(2), page(), 0); });
    a_moment();
    CHECK_FALSE(second.done());
    gate.open();
    CHECK(first.join() == HP_OK);
    CHECK(second.join() == HP_E_EXISTS);
  }
  CHECK(hp_unregister(memory.page_at(2)) == HP_OK);
}

TEST_CASE("who waited for pages that were then refused asks for them himself") {
  const Fresh fresh;
  const Memory memory(16 * page());
  Gate gate("register", memory.page_at(2));
  fail_next("register", 801);
  Background first([&] { return hp_register(memory.page_at(2), 2 * page(), HP_REGISTER_REQUIRED); });
  gate.wait_for_call();
  Background second([&] { return hp_register(memory.page_at(3), 3 * page(), HP_REGISTER_REQUIRED); });
  a_moment();
  CHECK_FALSE(second.done());
  gate.open();
  CHECK(first.join() == HP_E_REFUSED);
  CHECK(second.join() == HP_OK);
  CHECK(hps_pinned(memory.page_at(3), 3 * page()) == HPS_ALL);
  CHECK(hps_pinned(memory.page_at(2), page()) == HPS_NONE);
  CHECK(hp_unregister(memory.page_at(3)) == HP_OK);
}

TEST_CASE("who wants pages that are being released waits until they are") {
  const Fresh fresh("trace=1");
  const Memory memory(16 * page());
  const bool same = GENERATE(true, false);
  REQUIRE(hp_register(memory.page_at(2), 2 * page(), 0) == HP_OK);
  Gate gate("unregister", memory.page_at(2));
  Background first([&] { return hp_unregister(memory.page_at(2)); });
  gate.wait_for_call();
  void *ptr = memory.page_at(same ? 2 : 3);
  Background second([&] { return hp_register(ptr, 2 * page(), HP_REGISTER_REQUIRED); });
  a_moment();
  CHECK_FALSE(second.done());
  gate.open();
  CHECK(first.join() == HP_OK);
  CHECK(second.join() == HP_OK);
  CHECK(hps_pinned(ptr, 2 * page()) == HPS_ALL);
  for (const hps_call &call : traced(is_register)) CHECK(call.code == 0);
  CHECK(hp_unregister(ptr) == HP_OK);
}

TEST_CASE("an unregister that comes second finds nothing") {
  const Fresh fresh;
  const Memory memory(4 * page());
  REQUIRE(hp_register(memory.at(), page(), 0) == HP_OK);
  Gate gate("unregister", memory.at());
  Background first([&] { return hp_unregister(memory.at()); });
  gate.wait_for_call();
  Background second([&] { return hp_unregister(memory.at()); });
  a_moment();
  CHECK_FALSE(second.done());
  gate.open();
  CHECK(first.join() == HP_OK);
  CHECK(second.join() == HP_E_NOT_FOUND);
  CHECK(hps_calls("unregister") == 1);
}

TEST_CASE("unregister_all ends what is being pinned, once it is") {
  const Fresh fresh;
  const Memory memory(16 * page());
  REQUIRE(hp_register(memory.page_at(8), page(), 0) == HP_OK);
  Gate gate("register", memory.page_at(2));
  Background slow([&] { return hp_register(memory.page_at(2), 2 * page(), 0); });
  gate.wait_for_call();
  Background all([&] { return hp_unregister_all(kNoLimit); });
  a_moment();
  CHECK_FALSE(all.done());
  gate.open();
  CHECK(slow.join() == HP_OK);
  CHECK(all.join() == HP_OK);
  CHECK(hps_live_registrations() == 0);
}

TEST_CASE("unregister_all ends all that no other thread is at work on while the driver is busy with the rest") {
  const Fresh fresh;
  const Memory memory(16 * page());
  for (size_t i : {0, 4, 12}) REQUIRE(hp_register(memory.page_at(i), page(), 0) == HP_OK);
  Gate gate("register", memory.page_at(8));
  Background slow([&] { return hp_register(memory.page_at(8), 2 * page(), 0); });
  gate.wait_for_call();
  CHECK(hp_unregister_all(0) == HP_E_TIMEOUT);
  while (hps_live_registrations() > 0) std::this_thread::yield();
  // What is registered meanwhile is ended by a later request, which does not wait behind the earlier one.
  REQUIRE(hp_register(memory.page_at(2), page(), 0) == HP_OK);
  CHECK(hp_unregister_all(0) == HP_E_TIMEOUT);
  while (hps_live_registrations() > 0) std::this_thread::yield();
  gate.open();
  CHECK(slow.join() == HP_OK);
  CHECK(hp_unregister_all(kNoLimit) == HP_OK);
  CHECK(hps_live_registrations() == 0);
  CHECK(stats().registrations == 0);
}

TEST_CASE("unregister_all forgets what turns out pageable meanwhile") {
  const Fresh fresh;
  const Memory memory(16 * page());
  Gate gate("register", memory.page_at(8));
  fail_next("register", 304);
  Background slow([&] { return hp_register(memory.page_at(8), page(), 0); });
  gate.wait_for_call();
  Background all([&] { return hp_unregister_all(kNoLimit); });
  a_moment();
  CHECK_FALSE(all.done());
  gate.open();
  CHECK(slow.join() == HP_PAGEABLE);
  CHECK(all.join() == HP_OK);
  CHECK(hp_unregister(memory.page_at(8)) == HP_E_NOT_FOUND);
}

// ---- Many at once

namespace {

// What went wrong on other threads than Catch's, by line of this file.
class Wrong {
public:
  void check(bool ok, int line) {
    if (ok) return;
    const std::lock_guard lock(mutex_);
    lines_ += (lines_.empty() ? "line " : ", ") + std::to_string(line);
  }
  std::string lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

private:
  mutable std::mutex mutex_;
  std::string lines_;
};
#define EXPECT(ok) wrong.check((ok), __LINE__)

void hammer(const Memory &memory, unsigned seed, int rounds, Wrong &wrong, bool failing) {
  std::mt19937 random(seed);
  const size_t pages = memory.size() / page();
  struct Held {
    void *ptr;
    size_t len;
  };
  std::vector<Held> held;
  for (int i = 0; i < rounds; ++i) {
    if (held.size() < 4 && random() % 2) {
      // Bases of its own, so that what it holds is ended by itself only; one in three is common to all, with one length.
      const bool common = random() % 3 == 0;
      const size_t first = random() % (pages - 4);
      void *ptr = memory.at(first * page() + (common ? 0 : seed));
      const size_t len = common ? 3 * page() : 1 + random() % (4 * page() - seed);
      const auto same_base = [&](const Held &h) { return h.ptr == ptr; };
      if (!common && std::any_of(held.begin(), held.end(), same_base)) continue;
      const int32_t status = hp_register(ptr, len, HP_REGISTER_REQUIRED);
      if (failing && status == HP_E_REFUSED) continue;
      EXPECT(status == HP_OK);
      held.push_back({ptr, len});
    } else if (!held.empty()) {
      const size_t which = random() % held.size();
      const Held h = held[which];
      held.erase(held.begin() + static_cast<ptrdiff_t>(which));
      EXPECT(hp_unregister(h.ptr) == HP_OK);
    }
    for (const Held &h : held) {
      hp_region out{};
      out.struct_size = sizeof(out);
      EXPECT(hp_query(h.ptr, h.len, &out) == HP_OK);
      const auto at = reinterpret_cast<uintptr_t>(h.ptr);
      EXPECT(out.start <= at && at < out.end && out.references >= 1 && !out.stuck && !out.foreign);
      EXPECT(hps_pinned(h.ptr, h.len) == HPS_ALL);
    }
    hp_region anywhere{};
    anywhere.struct_size = sizeof(anywhere);
    const int32_t status = hp_query(memory.at(random() % (memory.size() - 64)), 1 + random() % 64, &anywhere);
    EXPECT(status == HP_OK ? anywhere.end > anywhere.start : status == HP_PAGEABLE);
  }
  for (const Held &h : held) EXPECT(hp_unregister(h.ptr) == HP_OK);
}

}  // namespace

TEST_CASE("eight threads on overlapping ranges of a slow driver") {
  const bool failing = GENERATE(false, true);
  const Fresh fresh(std::string("maps=0,delay=register:0.2,delay=unregister:0.1,serial=1") +
                    (failing ? ",random=register:0.1:801" : ""));
  const Memory memory(48 * page());
  Wrong wrong;
  std::atomic<bool> stop{false};
  std::thread asking([&] {
    while (!stop) {
      hp_stats s{};
      s.struct_size = sizeof(s);
      EXPECT(hp_get_stats(&s) == HP_OK);
      EXPECT(s.pinned_bytes <= memory.size());
      EXPECT(s.segments <= 48);
    }
  });
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 8; ++t)
    threads.emplace_back([&, t] { hammer(memory, t + 1, 150, wrong, failing); });
  for (auto &t : threads) t.join();
  stop = true;
  asking.join();
  CHECK(wrong.lines() == "");
  CHECK(hps_pinned_pages(nullptr, 0) == 0);
}

TEST_CASE("the same range from eight threads is one vendor call while anybody has it") {
  const Fresh fresh("delay=register:1");
  const Memory memory(4 * page());
  REQUIRE(hp_register(memory.at(), page(), 0) == HP_OK);
  Wrong wrong;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        EXPECT(hp_register(memory.at(), page(), 0) == HP_OK);
        EXPECT(hp_unregister(memory.at()) == HP_OK);
      }
    });
  for (auto &t : threads) t.join();
  CHECK(wrong.lines() == "");
  CHECK(hps_calls("register") == 1);
  CHECK(hps_calls("unregister") == 0);
  CHECK(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("unregister_all among threads that register") {
  const Fresh fresh("maps=0");
  const Memory memory(64 * page());
  Wrong wrong;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 200; ++i) {
        void *ptr = memory.at((i * 7 + t * 3) % 60 * page() + t);
        const int32_t made = hp_register(ptr, 3 * page(), 0);
        const int32_t ended = hp_unregister(ptr);
        EXPECT(made == HP_OK);
        EXPECT(ended == HP_OK || ended == HP_E_NOT_FOUND);
      }
    });
  for (int i = 0; i < 50; ++i)
    EXPECT(hp_unregister_all(kNoLimit) == HP_OK);
  for (auto &t : threads) t.join();
  CHECK(wrong.lines() == "");
  CHECK(hp_unregister_all(kNoLimit) == HP_OK);
}
