// What happens when the driver refuses to pin or to release.
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/statfs.h>

#include <algorithm>
#include <fstream>

#include "register_test.h"

using namespace test;

namespace {

// Pages 1, 3 and 5 are pinned beforehand, so that the range 0 to 6 needs four vendor calls: pages 0, 2, 4, 6.
class Islands {
public:
  Islands() : memory_(8 * page()) {
    for (size_t i : {1, 3, 5}) REQUIRE(hp_register(memory_.page_at(i), page(), 0) == HP_OK);
  }
  ~Islands() {
    for (size_t i : {1, 3, 5})
      if (hp_unregister(memory_.page_at(i)) != HP_OK) std::abort();
  }
  const Memory *operator->() const { return &memory_; }
  size_t size() const { return 7 * page(); }

  void check_untouched() const {
    for (size_t i = 0; i < 8; ++i) {
      const bool island = i == 1 || i == 3 || i == 5;
      CHECK(hps_pinned(memory_.page_at(i), 1) == (island ? HPS_ALL : HPS_NONE));
      const hp_region r = region(memory_.page_at(i), 1, island ? HP_OK : HP_PAGEABLE);
      CHECK(r.references == (island ? 1u : 0u));
    }
    CHECK(stats().registrations == 3);
    CHECK(stats().pinned_bytes == 3 * page());
  }

private:
  Memory memory_;
};

}  // namespace

TEST_CASE("a refusal in the middle is rolled back in reverse") {
  const Fresh fresh("trace=1");
  const Islands memory;
  const uint32_t flags = GENERATE(0u, HP_REGISTER_REQUIRED);
  const uint64_t good = GENERATE(range(0, 4));
  CAPTURE(flags, good);
  fail_next("register", 801, 1, good);
  CHECK(hp_register(memory->at(), memory.size(), flags) == (flags ? HP_E_REFUSED : HP_PAGEABLE));
  CHECK(hp_last_native_error() == 801);
  memory.check_untouched();
  const auto released = traced(is_unregister);
  REQUIRE(released.size() == good);
  for (size_t i = 0; i < good; ++i) CHECK(released[i].ptr == memory->page_at(2 * (good - 1 - i)));
  CHECK(hp_unregister(memory->at()) == (flags ? HP_E_NOT_FOUND : HP_OK));
  // What failed can be tried again.
  REQUIRE(hp_register(memory->at(), memory.size(), flags) == HP_OK);
  CHECK(hps_pinned(memory->at(), memory.size()) == HPS_ALL);
  REQUIRE(hp_unregister(memory->at()) == HP_OK);
  memory.check_untouched();
}

TEST_CASE("what cannot be rolled back stays known as stuck") {
  const Fresh fresh;
  const uint32_t flags = GENERATE(0u, HP_REGISTER_REQUIRED);
  {
    const Islands memory;
    fail_next("register", 801, 1, 2);
    fail_next("unregister", 1);  // page 2 cannot be released, page 0 can
    CHECK(hp_register(memory->at(), memory.size(), flags) == HP_E_STUCK);
    CHECK(hp_last_native_error() == 1);
    CHECK(contains(hp_last_error(), "do not unmap"));
    CHECK(stats().stuck_segments == 1);
    CHECK(stats().pinned_bytes == 4 * page());
    CHECK(region(memory->page_at(2), 1).stuck == 1);
    CHECK(region(memory->page_at(2), 1).references == 0);
    CHECK(hp_query(memory->at(), 1, nullptr) == HP_PAGEABLE);
    CHECK(hps_pinned(memory->page_at(0), 1) == HPS_NONE);
    CHECK(hp_unregister(memory->at()) == HP_OK);
    memory.check_untouched();
    CHECK(hp_unregister(memory->at()) == HP_E_NOT_FOUND);
  }
}

TEST_CASE("a release that fails can be tried again, and never happens twice") {
  const Fresh fresh("trace=1");
  const Memory memory(8 * page());
  const int code = GENERATE(1, 700, 719, 801, 999);
  REQUIRE(hp_register(memory.page_at(1), page(), 0) == HP_OK);
  REQUIRE(hp_register(memory.at(), 3 * page(), 0) == HP_OK);  // segments 0, 1, 2
  REQUIRE(hp_unregister(memory.page_at(1)) == HP_OK);
  fail_next("unregister", code, 1, 1);  // segment 1
  CHECK(hp_unregister(memory.at()) == HP_E_STUCK);
  CHECK(hp_last_native_error() == code);
  CHECK(contains(hp_last_error(), hex(memory.page_at(1))));
  CHECK(contains(hp_last_error(), std::to_string(code)));
  CHECK(stats().registrations == 0);
  CHECK(stats().segments == 1);
  CHECK(stats().stuck_segments == 1);
  const hp_region r = region(memory.page_at(1), page());
  CHECK(r.stuck == 1);
  CHECK(r.start == memory.address(page()));
  CHECK(hp_query(memory.at(), 1, nullptr) == HP_PAGEABLE);
  CHECK(hp_query(memory.page_at(2), 1, nullptr) == HP_PAGEABLE);

  fail_next("unregister", code);
  CHECK(hp_unregister(memory.at()) == HP_E_STUCK);
  CHECK(stats().stuck_segments == 1);
  CHECK(hp_unregister(memory.at()) == HP_OK);
  CHECK(stats().stuck_segments == 0);
  CHECK(hp_unregister(memory.at()) == HP_E_NOT_FOUND);
  // Segments 2, 1, 0, then 1 twice more.
  const auto released = traced(is_unregister);
  REQUIRE(released.size() == 5);
  const size_t order[] = {2, 1, 0, 1, 1};
  for (size_t i = 0; i < 5; ++i) CHECK(released[i].ptr == memory.page_at(order[i]));
}

TEST_CASE("memory that is stuck can be registered again, which makes no vendor call for it") {
  const Fresh fresh;
  const Memory memory(8 * page());
  REQUIRE(hp_register(memory.at(), 2 * page(), 0) == HP_OK);
  fail_next("unregister", 1);
  REQUIRE(hp_unregister(memory.at()) == HP_E_STUCK);
  const uint64_t calls = hps_calls("register");
  SECTION("under the same base") {
    CHECK(hp_register(memory.at(), 2 * page(), 0) == HP_OK);
    CHECK(hps_calls("register") == calls);
    CHECK(stats().stuck_segments == 0);
    CHECK(stats().registrations == 1);
    CHECK(region(memory.at(), 2 * page()).stuck == 0);
    CHECK(region(memory.at(), 2 * page()).references == 1);
    CHECK(hp_unregister(memory.at()) == HP_OK);
  }
  SECTION("under another base, ended last") {
    CHECK(hp_register(memory.page_at(1), 3 * page(), 0) == HP_OK);
    CHECK(hps_calls("register") == calls + 1);
    CHECK(stats().stuck_segments == 0);
    CHECK(hp_unregister(memory.at()) == HP_OK);  // nothing of it is stuck any more
    CHECK(hps_pinned(memory.page_at(1), 3 * page()) == HPS_ALL);
    CHECK(hp_unregister(memory.page_at(1)) == HP_OK);
  }
  SECTION("under another base, ended first") {
    CHECK(hp_register(memory.page_at(1), 3 * page(), 0) == HP_OK);
    CHECK(hp_unregister(memory.page_at(1)) == HP_OK);
    CHECK(hps_live_registrations() == 0);
    CHECK(hp_unregister(memory.at()) == HP_OK);
  }
  SECTION("which is refused: then it is released") {
    fail_next("register", 801);
    CHECK(hp_register(memory.at(1), 3 * page(), 0) == HP_PAGEABLE);
    CHECK(hps_live_registrations() == 0);
    CHECK(hp_unregister(memory.at(1)) == HP_OK);
    CHECK(hp_unregister(memory.at()) == HP_OK);
  }
  CHECK(hp_unregister(memory.at()) == HP_E_NOT_FOUND);
}

TEST_CASE("a stuck registration is not lost by one of another length") {
  const Fresh fresh;
  const Memory memory(8 * page());
  REQUIRE(hp_register(memory.page_at(1), page(), 0) == HP_OK);
  REQUIRE(hp_register(memory.at(), 3 * page(), 0) == HP_OK);
  REQUIRE(hp_unregister(memory.page_at(1)) == HP_OK);
  fail_next("unregister", 1, 3);
  REQUIRE(hp_unregister(memory.at()) == HP_E_STUCK);
  REQUIRE(stats().stuck_segments == 3);
  CHECK(hp_register(memory.at(), page(), 0) == HP_E_EXISTS);
  CHECK(stats().stuck_segments == 3);
  CHECK(hp_unregister(memory.at()) == HP_OK);
  CHECK(hps_live_registrations() == 0);
}

TEST_CASE("a release is done when the driver says that the pin is gone with its context") {
  const Fresh fresh;
  const Memory memory(2 * page());
  const int code = GENERATE(4, 201, 709, 713);
  CAPTURE(code);
  const hp_stats before = stats();
  REQUIRE(hp_register(memory.at(), page(), 0) == HP_OK);
  // By the driver's own table it is still pinned: only the code counts.
  fail_next("unregister", code);
  CHECK(hp_unregister(memory.at()) == HP_OK);
  CHECK(hp_query(memory.at(), 1, nullptr) == HP_PAGEABLE);
  CHECK(hp_unregister(memory.at()) == HP_E_NOT_FOUND);
  CHECK(stats().failed_release == before.failed_release);
  CHECK(stats().segments == 0);
  Fresh::renew_driver();
}

TEST_CASE("each refusal is counted under what it means") {
  const Fresh fresh;
  const Memory memory(2 * page());
  struct Case {
    int code;
    uint64_t hp_stats::*counter;
  };
  const auto c = GENERATE(Case{1, &hp_stats::failed_invalid}, Case{2, &hp_stats::failed_memory},
                          Case{800, &hp_stats::failed_unsupported}, Case{801, &hp_stats::failed_unsupported},
                          Case{900, &hp_stats::failed_capture}, Case{906, &hp_stats::failed_capture},
                          Case{3, &hp_stats::failed_device}, Case{35, &hp_stats::failed_device},
                          Case{100, &hp_stats::failed_device}, Case{201, &hp_stats::failed_device},
                          Case{700, &hp_stats::failed_device}, Case{709, &hp_stats::failed_device},
                          Case{719, &hp_stats::failed_device}, Case{999, &hp_stats::failed_device},
                          Case{304, &hp_stats::failed_other}, Case{12345, &hp_stats::failed_other});
  CAPTURE(c.code);
  const hp_stats before = stats();
  fail_next("register", c.code);
  CHECK(hp_register(memory.at(), page(), HP_REGISTER_REQUIRED) == HP_E_REFUSED);
  CHECK(hp_last_native_error() == c.code);
  CHECK(contains(hp_last_error(), std::to_string(c.code)));
  const hp_stats after = stats();
  for (auto counter : {&hp_stats::failed_invalid, &hp_stats::failed_memory, &hp_stats::failed_foreign,
                       &hp_stats::failed_unsupported, &hp_stats::failed_capture, &hp_stats::failed_device,
                       &hp_stats::failed_release, &hp_stats::failed_other})
    CHECK(after.*counter - before.*counter == (counter == c.counter ? 1u : 0u));
  CHECK(after.vendor_calls == before.vendor_calls + 1);
}

TEST_CASE("a refusal has a hint where its cause can be seen") {
  const Fresh fresh;
  SECTION("memory that is not mapped") {
    void *hole = nullptr;
    {
      const Memory memory(2 * page());
      hole = memory.at();
    }
    CHECK(hp_register(hole, page(), 0) == HP_PAGEABLE);
    CHECK(contains(hp_last_error(), "hint: not all of the range is mapped"));
    CHECK(hp_unregister(hole) == HP_OK);
  }
  SECTION("memory without access") {
    const Memory memory(2 * page(), PROT_NONE);
    fail_next("register", 801);
    CHECK(hp_register(memory.at(), page(), HP_REGISTER_REQUIRED) == HP_E_REFUSED);
    CHECK(contains(hp_last_error(), "hint: the range is mapped without access"));
  }
  SECTION("a lost device") {
    const Memory memory(2 * page());
    fail_next("register", 719);
    CHECK(hp_register(memory.at(), page(), HP_REGISTER_REQUIRED) == HP_E_REFUSED);
    CHECK(contains(hp_last_error(), "hint: the device or its context is lost"));
  }
  SECTION("none for ordinary memory") {
    const Memory memory(2 * page());
    fail_next("register", 304);
    CHECK(hp_register(memory.at(), page(), HP_REGISTER_REQUIRED) == HP_E_REFUSED);
    CHECK_FALSE(contains(hp_last_error(), "hint"));
  }
}

TEST_CASE("a range that is too large for one call is tried in smaller ones") {
  const Fresh fresh("max_pin=2G,trace=1");
  const Memory memory(7 * kGiB + page());
  REQUIRE(hp_register(memory.at(), memory.size(), HP_REGISTER_REQUIRED) == HP_OK);
  CHECK(hps_pinned(memory.at(), memory.size()) == HPS_ALL);
  uint64_t at = memory.address();
  for (const auto &s : pinned_by_driver()) {
    CHECK(reinterpret_cast<uintptr_t>(s.ptr) == at);
    CHECK(s.length <= 2 * kGiB);
    CHECK(s.length % page() == 0);
    at += s.length;
  }
  CHECK(at == memory.address(memory.size()));
  CHECK(stats().segments == hps_live_registrations());
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("no huge page lies in two of the smaller ones") {
  const Fresh fresh("max_pin=2G,trace=1");
  const Memory memory(9 * kGiB);
  const size_t huge = size_t{2} << 20;
  const size_t first = huge - memory.address() % huge + page();  // its start lies inside of a huge page
  REQUIRE(hp_register(memory.at(first), 8 * kGiB, HP_REGISTER_REQUIRED) == HP_OK);
  uint64_t at = memory.address(first);
  for (const auto &s : pinned_by_driver()) {
    CHECK(reinterpret_cast<uintptr_t>(s.ptr) == at);
    CHECK((at == memory.address(first) || at % huge == 0));
    at += s.length;
  }
  CHECK(at == memory.address(first + 8 * kGiB));
  REQUIRE(hp_unregister(memory.at(first)) == HP_OK);
}

TEST_CASE("refusals are answered with smaller calls down to 256 MiB, and not for ever") {
  const Fresh fresh("trace=1");
  const Memory memory(8 * kGiB + (4 << 20));
  const size_t huge = size_t{2} << 20;
  const size_t first = huge - memory.address() % huge + GENERATE(0, 1) * page();
  const int code = GENERATE(1, 2);
  fail_next("register", code, 1000);
  CHECK(hp_register(memory.at(first), 8 * kGiB, HP_REGISTER_REQUIRED) == HP_E_REFUSED);
  CHECK(hp_last_native_error() == code);
  const auto made = traced(is_register);
  CHECK(made.size() >= 6);  // 8 GiB, 4, 2, 1, 512 MiB, 256 MiB
  CHECK(made.size() <= 12);
  for (const auto &call : made) {
    CHECK(call.ptr == memory.at(first));
    CHECK(call.length >= kGiB / 4);
  }
  CHECK(made.back().length < kGiB / 4 + (2 << 20));  // cut between huge pages
  CHECK(hps_live_registrations() == 0);
}

TEST_CASE("other refusals are not tried again") {
  const Fresh fresh;
  const Memory memory(8 * kGiB);
  const int code = GENERATE(304, 712, 719, 801, 900, 999);
  fail_next("register", code, 1000);
  CHECK(hp_register(memory.at(), memory.size(), HP_REGISTER_REQUIRED) == HP_E_REFUSED);
  CHECK(hps_calls("register") == 1);
}

TEST_CASE("a driver with a small pool takes what fits and gives the rest back") {
  const Fresh fresh("max_total=1G");
  const Memory memory(4 * kGiB);
  REQUIRE(hp_register(memory.at(), kGiB / 2, 0) == HP_OK);
  CHECK(hp_register(memory.at(kGiB), 2 * kGiB, 0) == HP_PAGEABLE);
  CHECK(hps_live_registrations() == 1);
  REQUIRE(hp_register(memory.at(kGiB), kGiB / 2, 0) == HP_OK);
  CHECK(hp_unregister(memory.at(kGiB)) == HP_OK);
  CHECK(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("the hint to a refusal tells files on a disk from memory") {
  const Fresh fresh;
  const bool on_disk = GENERATE(true, false);
  CAPTURE(on_disk);
  char name[] = "hostpin-errors-XXXXXX";  // in the build folder
  const int file = on_disk ? mkstemp(name) : memfd_create("hostpin-errors", MFD_CLOEXEC);
  if (on_disk) unlink(name);
  REQUIRE(ftruncate(file, static_cast<off_t>(page())) == 0);
  struct statfs fs {};
  REQUIRE(fstatfs(file, &fs) == 0);
  void *const memory = mmap(nullptr, page(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  REQUIRE(memory != MAP_FAILED);
  fail_next("register", 801);
  CHECK(hp_register(memory, page(), HP_REGISTER_REQUIRED) == HP_E_REFUSED);
  CHECK(contains(hp_last_error(), "hint: the range maps a file on a filesystem") == (fs.f_type != TMPFS_MAGIC));
  CHECK(contains(hp_last_error(), "hint") == (fs.f_type != TMPFS_MAGIC));
  munmap(memory, page());
  close(file);
}

TEST_CASE("the hint to a refusal tells that memory is that of a device") {
  const Fresh fresh;
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line) && !contains(line, "[vvar")) {
  }
  REQUIRE(maps);  // the kernel's own variables, which are mapped like a device's memory
  void *const variables = reinterpret_cast<void *>(std::stoull(line, nullptr, 16));
  fail_next("register", 801);
  CHECK(hp_register(variables, page(), HP_REGISTER_REQUIRED) == HP_E_REFUSED);
  CHECK(contains(hp_last_error(), "hint: the range maps device memory; HP_REGISTER_IOMEMORY may be needed"));
}

TEST_CASE("the hint to a refusal tells of a low limit of locked memory") {
  const Fresh fresh;
  const Memory memory(2 * page());
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_MEMLOCK, &before) == 0);
  const uint64_t bytes = GENERATE(1, 2) * page();
  CAPTURE(bytes);
  const rlimit low{page(), before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_MEMLOCK, &low) == 0);
  fail_next("register", 2);
  CHECK(hp_register(memory.at(), bytes, HP_REGISTER_REQUIRED) == HP_E_REFUSED);
  const std::string text = hp_last_error();
  REQUIRE(setrlimit(RLIMIT_MEMLOCK, &before) == 0);
  CHECK(contains(text, "hint: the limit of locked memory (ulimit -l) is " + std::to_string(page()) + " bytes") ==
        (bytes > page()));
}
