// Registering, releasing and asking, whichever runtime is behind it.
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <thread>

#include "register_test.h"

using namespace test;

TEST_CASE("the backend that was named is the one in use") {
  const hp_backend_info info = backend();
  CHECK(info.backend == (is_hip() ? HP_BACKEND_HIP : HP_BACKEND_CUDA));
  CHECK(info.name == std::string_view(is_hip() ? "hip" : "cuda"));
  CHECK(info.runtime_file == std::string_view(runtime_file()));
  CHECK(info.device_count >= 1);
  CHECK((info.capabilities & HP_CAP_DEVICE_POINTER));
  CHECK(std::string_view(is_hip() ? info.hip_reason : info.cuda_reason).empty());
  CHECK(contains(is_hip() ? info.cuda_reason : info.hip_reason, "not looked for"));
  CHECK(contains(info.level_zero_reason, "not looked for"));
  // Texts stay what and where they are.
  const hp_backend_info again = backend();
  CHECK(std::memcmp(&again, &info, sizeof(info)) == 0);
}

TEST_CASE("a registration pins its pages, and one unregister releases them") {
  const Fresh fresh;
  const Memory memory(8 * page());
  struct Range {
    size_t offset, len, first, pages;
  };
  const auto r = GENERATE(Range{page(), page(), 1, 1}, Range{page(), 1, 1, 1}, Range{2 * page() - 1, 2, 1, 2},
                          Range{page() + 17, 4 * page(), 1, 5}, Range{3 * page() - 1, 1, 2, 1},
                          Range{page(), 6 * page(), 1, 6});
  CAPTURE(r.offset, r.len);
  std::memset(memory.at(), 0x5a, memory.size());
  char *ptr = static_cast<char *>(memory.at(r.offset));

  REQUIRE(hp_register(ptr, r.len, 0) == HP_OK);
  CHECK(hps_pinned_pages(memory.page_at(r.first), r.pages * page()) == r.pages);
  CHECK(hps_pinned_pages(nullptr, 0) == r.pages);
  CHECK(hps_calls("register") == 1);
  CHECK(region(ptr, r.len).start == memory.address(r.first * page()));
  CHECK(region(ptr, r.len).end == memory.address((r.first + r.pages) * page()));

  REQUIRE(hp_unregister(ptr) == HP_OK);
  CHECK(hps_pinned_pages(nullptr, 0) == 0);
  CHECK(hps_calls("unregister") == 1);
  CHECK(region(ptr, r.len, HP_PAGEABLE).start == 0);
  for (size_t i = 0; i < memory.size(); ++i)
    if (static_cast<char *>(memory.at())[i] != 0x5a) FAIL("byte " << i << " was changed");
}

TEST_CASE("what the driver is given is whole pages") {
  const Fresh fresh;
  const Memory memory(4 * page());
  REQUIRE(hp_register(memory.at(page() + 5), page(), 0) == HP_OK);
  const auto all = pinned_by_driver();
  REQUIRE(all.size() == 1);
  CHECK(all[0].ptr == memory.page_at(1));
  CHECK(all[0].length == 2 * page());
  REQUIRE(hp_unregister(memory.at(page() + 5)) == HP_OK);
}

TEST_CASE("the same range again is counted, with one vendor call") {
  const Fresh fresh;
  const Memory memory(4 * page());
  for (uint32_t i = 1; i <= 5; ++i) {
    REQUIRE(hp_register(memory.at(3), page(), 0) == HP_OK);
    CHECK(region(memory.at(3), page()).references == i);
    CHECK(stats().registrations == 1);
    CHECK(stats().pinned_bytes == 2 * page());
  }
  CHECK(hps_calls("register") == 1);
  for (uint32_t i = 4; i >= 1; --i) {
    REQUIRE(hp_unregister(memory.at(3)) == HP_OK);
    CHECK(region(memory.at(3), page()).references == i);
    CHECK(hps_pinned(memory.at(), 2 * page()) == HPS_ALL);
  }
  CHECK(hps_calls("unregister") == 0);
  REQUIRE(hp_unregister(memory.at(3)) == HP_OK);
  CHECK(hps_calls("unregister") == 1);
  CHECK(hp_unregister(memory.at(3)) == HP_E_NOT_FOUND);
}

TEST_CASE("the same base with another length is refused, and nothing changes") {
  const Fresh fresh;
  const Memory memory(4 * page());
  REQUIRE(hp_register(memory.at(), 2 * page(), 0) == HP_OK);
  const size_t len = GENERATE_COPY(size_t{1}, 2 * page() - 1, 2 * page() + 1, 4 * page());
  const uint64_t calls = hps_calls("*");
  CHECK(hp_register(memory.at(), len, 0) == HP_E_EXISTS);
  CHECK(hp_register(memory.at(), len, HP_REGISTER_REQUIRED) == HP_E_EXISTS);
  CHECK(contains(hp_last_error(), hex(memory.at())));
  CHECK(contains(hp_last_error(), std::to_string(2 * page())));
  CHECK(contains(hp_last_error(), std::to_string(len)));
  CHECK(hp_last_native_error() == 0);
  CHECK(hps_calls("*") == calls);
  CHECK(region(memory.at(), 2 * page()).references == 1);
  CHECK(stats().pinned_bytes == 2 * page());
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("only the exact base ends a registration") {
  const Fresh fresh;
  const Memory memory(4 * page());
  CHECK(hp_unregister(memory.at()) == HP_E_NOT_FOUND);
  CHECK(contains(hp_last_error(), hex(memory.at())));
  CHECK_FALSE(contains(hp_last_error(), "lies in"));

  REQUIRE(hp_register(memory.at(64), 2 * page(), 0) == HP_OK);
  for (size_t offset : {size_t{0}, size_t{63}, size_t{65}, page(), 2 * page() + 63}) {
    CAPTURE(offset);
    CHECK(hp_unregister(memory.at(offset)) == HP_E_NOT_FOUND);
    const bool inside = offset > 64;
    CHECK(contains(hp_last_error(), hex(memory.at(64))) == inside);
  }
  CHECK(hps_calls("unregister") == 0);
  CHECK(region(memory.at(64), 2 * page()).references == 1);
  CHECK(hp_unregister(memory.at(64)) == HP_OK);
}

TEST_CASE("a query tells which segment holds an address") {
  const Fresh fresh;
  const Memory memory(8 * page());
  REQUIRE(hp_register(memory.page_at(2), 2 * page(), 0) == HP_OK);
  REQUIRE(hp_register(memory.page_at(4), page(), 0) == HP_OK);  // touches the first
  const uint64_t calls = hps_calls("*");

  const hp_region inside = region(memory.at(2 * page() + 7), page());
  CHECK(inside.backend == backend().backend);
  CHECK(inside.start == memory.address(2 * page()));
  CHECK(inside.end == memory.address(4 * page()));
  CHECK(inside.one_segment == 1);
  CHECK(inside.references == 1);
  CHECK(inside.stuck == 0);
  CHECK(inside.foreign == 0);
  CHECK(inside.host_address == 1);
  CHECK((inside.flags & HP_REGISTER_PORTABLE));

  CHECK(region(memory.at(4 * page() - 1), 2).one_segment == 0);
  CHECK(region(memory.at(4 * page() - 1), 1).one_segment == 1);
  CHECK(region(memory.page_at(2), 3 * page()).end == memory.address(4 * page()));
  CHECK(hp_query(memory.page_at(2), 3 * page(), nullptr) == HP_OK);

  // Some of it is not pinned: the segment at its start is told all the same.
  CHECK(hp_query(memory.page_at(2), 3 * page() + 1, nullptr) == HP_PAGEABLE);
  CHECK(region(memory.page_at(2), 3 * page() + 1, HP_PAGEABLE).start == memory.address(2 * page()));
  CHECK(hp_query(memory.at(2 * page() - 1), 2, nullptr) == HP_PAGEABLE);

  // Where no segment holds the address all is zero, whatever was there.
  hp_region out;
  std::memset(&out, 0xff, sizeof(out));
  out.struct_size = sizeof(out);
  REQUIRE(hp_query(memory.at(2 * page() - 1), 2, &out) == HP_PAGEABLE);
  hp_region zero{};
  zero.struct_size = sizeof(zero);
  CHECK(std::memcmp(&out, &zero, sizeof(out)) == 0);

  CHECK(hps_calls("*") == calls);
  REQUIRE(hp_unregister(memory.page_at(2)) == HP_OK);
  CHECK(hp_query(memory.page_at(2), 1, nullptr) == HP_PAGEABLE);
  CHECK(hp_query(memory.page_at(4), 1, nullptr) == HP_OK);
  REQUIRE(hp_unregister(memory.page_at(4)) == HP_OK);
}

TEST_CASE("device pointers keep their offset and are asked for once a segment") {
  const uint64_t offset = GENERATE(uint64_t{0}, uint64_t{1} << 44);
  const Fresh fresh("device_offset=" + std::to_string(offset));
  const Memory memory(8 * page());
  REQUIRE(hp_register(memory.at(page() + 100), 2 * page(), 0) == HP_OK);
  REQUIRE(hp_register(memory.page_at(5), page(), 0) == HP_OK);
  for (int round = 0; round < 3; ++round)
    for (size_t at : {page(), page() + 100, 3 * page() + 5, 4 * page() - 1, 5 * page(), 6 * page() - 1}) {
      void *device = nullptr;
      REQUIRE(hp_device_pointer(memory.at(at), &device) == HP_OK);
      CHECK(reinterpret_cast<uintptr_t>(device) == memory.address(at) + offset);
    }
  CHECK(hps_calls(device_pointer_function()) == 2);

  void *untouched = &untouched;
  for (size_t at : {size_t{0}, page() - 1, 4 * page(), 6 * page()}) {
    CHECK(hp_device_pointer(memory.at(at), &untouched) == HP_E_NOT_FOUND);
    CHECK(contains(hp_last_error(), hex(memory.at(at))));
  }
  CHECK(untouched == &untouched);
  CHECK(hps_calls(device_pointer_function()) == 2);
  REQUIRE(hp_unregister(memory.at(page() + 100)) == HP_OK);
  CHECK(hp_device_pointer(memory.at(page() + 100), &untouched) == HP_E_NOT_FOUND);
  REQUIRE(hp_unregister(memory.page_at(5)) == HP_OK);
}

TEST_CASE("a segment at an address where another one was does not inherit its device pointer") {
  const Fresh fresh;
  const Memory memory(page());
  void *device = nullptr;
  REQUIRE(hp_register(memory.at(), page(), 0) == HP_OK);
  REQUIRE(hp_device_pointer(memory.at(), &device) == HP_OK);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
  script("device_offset=1T");
  REQUIRE(hp_register(memory.at(), page(), 0) == HP_OK);
  REQUIRE(hp_device_pointer(memory.at(8), &device) == HP_OK);
  CHECK(reinterpret_cast<uintptr_t>(device) == memory.address(8) + (uint64_t{1} << 40));
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("a device pointer that the driver refuses is not asked for again") {
  const Fresh fresh;
  const Memory memory(page());
  script(std::string("fail=") + device_pointer_function() + ":*:801");
  REQUIRE(hp_register(memory.at(), page(), 0) == HP_OK);
  void *untouched = &untouched;
  const uint64_t before = hps_calls(device_pointer_function());
  CHECK(hp_device_pointer(memory.at(), &untouched) == HP_E_UNSUPPORTED);
  CHECK(hp_last_native_error() == 801);
  CHECK(contains(hp_last_error(), hex(memory.at())));
  CHECK(hp_device_pointer(memory.at(9), &untouched) == HP_E_UNSUPPORTED);
  CHECK(untouched == &untouched);
  CHECK(hps_calls(device_pointer_function()) == before + 1);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("600 GiB are cut under the driver's limit and released one by one, last first") {
  const Fresh fresh("trace=1");
  const Memory memory(600 * kGiB, PROT_NONE);
  const uint64_t limit = backend().max_segment;
  REQUIRE(limit == 64 * kGiB);
  REQUIRE(hp_register(memory.at(), memory.size(), 0) == HP_OK);
  CHECK(hps_pinned(memory.at(), memory.size()) == HPS_ALL);
  CHECK(stats().pinned_bytes == memory.size());
  uint64_t at = memory.address();
  const auto segments = pinned_by_driver();
  CHECK(segments.size() == 10);
  for (const auto &s : segments) {
    CHECK(reinterpret_cast<uintptr_t>(s.ptr) == at);
    CHECK(s.length <= limit);
    CHECK(s.length % page() == 0);
    const hp_region r = region(s.ptr, s.length);
    CHECK(r.start == at);
    CHECK(r.end == at + s.length);
    at += s.length;
  }
  CHECK(at == memory.address(memory.size()));

  REQUIRE(hp_unregister(memory.at()) == HP_OK);
  const auto released = traced(is_unregister);
  REQUIRE(released.size() == segments.size());
  for (size_t i = 0; i < released.size(); ++i) CHECK(released[i].ptr == segments[segments.size() - 1 - i].ptr);
}

TEST_CASE("the counters add up") {
  const Fresh fresh;
  const Memory memory(64 * page());
  const hp_stats before = stats();
  const auto since = [&](uint64_t hp_stats::*counter) { return stats().*counter - before.*counter; };
  REQUIRE(before.registrations == 0);

  REQUIRE(hp_register(memory.page_at(0), 4 * page(), 0) == HP_OK);         // one call
  REQUIRE(hp_register(memory.at(2 * page() + 1), 4 * page(), 0) == HP_OK);  // pages 4 to 6: one call
  REQUIRE(hp_register(memory.page_at(1), page(), 0) == HP_OK);             // none
  REQUIRE(hp_register(memory.page_at(1), page(), 0) == HP_OK);             // none
  CHECK(stats().registrations == 3);
  CHECK(stats().segments == 2);
  CHECK(stats().pinned_bytes == 7 * page());
  CHECK(since(&hp_stats::vendor_calls) == 2);

  fail_next("register", 801);
  REQUIRE(hp_register(memory.page_at(10), 3 * page() - 5, 0) == HP_PAGEABLE);
  CHECK(since(&hp_stats::failed_unsupported) == 1);
  CHECK(stats().pageable_bytes == 3 * page() - 5);
  CHECK(stats().registrations == 3);
  CHECK(since(&hp_stats::vendor_calls) == 3);

  REQUIRE(hps_pin_foreign(vendor(), memory.page_at(20), 2 * page()) == 0);
  REQUIRE(hp_register(memory.page_at(20), page() + 9, 0) == HP_FOREIGN);
  CHECK(since(&hp_stats::failed_foreign) == 1);
  CHECK(stats().foreign_bytes == page() + 9);
  CHECK(since(&hp_stats::vendor_calls) == 4);
  CHECK(stats().pinned_bytes == 7 * page());

  REQUIRE(hp_unregister(memory.page_at(0)) == HP_OK);  // segment [0, 4) stays: two registrations cover pages of it
  CHECK(since(&hp_stats::vendor_calls) == 4);
  fail_next("unregister", 1);
  REQUIRE(hp_unregister(memory.at(2 * page() + 1)) == HP_E_STUCK);  // [4, 7) cannot be released, [0, 4) stays for page 1
  CHECK(since(&hp_stats::failed_release) == 1);
  CHECK(stats().stuck_segments == 1);
  CHECK(stats().segments == 2);
  CHECK(stats().pinned_bytes == 7 * page());
  CHECK(stats().registrations == 1);
  REQUIRE(hp_unregister(memory.at(2 * page() + 1)) == HP_OK);
  CHECK(stats().stuck_segments == 0);
  CHECK(stats().pinned_bytes == 4 * page());
  REQUIRE(hp_unregister(memory.page_at(1)) == HP_OK);
  REQUIRE(hp_unregister(memory.page_at(1)) == HP_OK);
  REQUIRE(hp_unregister(memory.page_at(10)) == HP_OK);
  REQUIRE(hp_unregister(memory.page_at(20)) == HP_OK);

  const hp_stats after = stats();
  CHECK(after.registrations == 0);
  CHECK(after.segments == 0);
  CHECK(after.pinned_bytes == 0);
  CHECK(after.pageable_bytes == 0);
  CHECK(after.foreign_bytes == 0);
  CHECK(after.pinned_bytes_max >= 7 * page());
  CHECK(since(&hp_stats::vendor_calls) == 7);  // three more releases: stuck, retried, and the last one
  CHECK(after.vendor_ns > before.vendor_ns);
  CHECK(after.vendor_ns_max <= after.vendor_ns);
  CHECK(after.vendor_ns_max > 0);
  for (auto counter : {&hp_stats::failed_invalid, &hp_stats::failed_memory, &hp_stats::failed_capture,
                       &hp_stats::failed_device, &hp_stats::failed_other})
    CHECK(since(counter) == 0);
  CHECK(after.reserved0 == 0);
  for (uint64_t r : after.reserved) CHECK(r == 0);
  REQUIRE(hps_unpin_foreign(vendor(), memory.page_at(20)) == 0);
}

TEST_CASE("the most that was ever pinned does not count what the driver refused") {
  const Fresh fresh;
  const Memory memory(4 * kGiB, PROT_NONE);
  const uint64_t before = stats().pinned_bytes_max;
  const size_t more = static_cast<size_t>(before) + page();
  const Memory large(more, PROT_NONE);
  fail_next("register", 801, 64);
  REQUIRE(hp_register(large.at(), more, 0) == HP_PAGEABLE);
  CHECK(stats().pinned_bytes_max == before);
  REQUIRE(hp_unregister(large.at()) == HP_OK);
}

TEST_CASE("calls leave errno alone") {
  const Fresh fresh;
  const Memory memory(4 * page());
  const Memory none(page(), PROT_NONE);
  void *device = nullptr;
  char *const at = static_cast<char *>(memory.at());
  const auto keeps = [](const char *what, int32_t expected, auto call) {
    CAPTURE(what);
    errno = 4711;
    const int32_t status = call();
    const int after = errno;
    CHECK(after == 4711);
    CHECK(status == expected);
  };
  // The hook stands for a driver that sets errno in each of its calls.
  hps_on_call([](const char *, const void *, size_t, void *) { errno = ENOENT; }, nullptr);
  keeps("register", HP_OK, [&] { return hp_register(at, page(), 0); });
  keeps("register again", HP_OK, [&] { return hp_register(at, page(), 0); });
  keeps("exists", HP_E_EXISTS, [&] { return hp_register(at, 2, 0); });
  keeps("invalid", HP_E_INVALID, [&] { return hp_register(at, 0, 0); });
  keeps("query", HP_OK, [&] { return hp_query(at, 1, nullptr); });
  keeps("query pageable", HP_PAGEABLE, [&] { return hp_query(at + page(), 1, nullptr); });
  keeps("query invalid", HP_E_INVALID, [&] { return hp_query(at, 0, nullptr); });
  keeps("device pointer", HP_OK, [&] { return hp_device_pointer(at, &device); });
  keeps("backend", HP_OK, [&] { return backend().device_count > 0 ? HP_OK : 1; });
  keeps("stats", HP_OK, [&] { return stats().registrations == 1 ? HP_OK : 1; });
  keeps("configure", HP_E_INVALID, [&] { return hp_configure(nullptr); });
  keeps("texts", 0, [&] { return *hp_strerror(1) && hp_last_error() && hp_last_native_error() == 0 ? 0 : 1; });
  fail_next("register", 1, 2);
  keeps("refused", HP_PAGEABLE, [&] { return hp_register(at + page(), page(), 0); });
  keeps("unregister", HP_OK, [&] { return hp_unregister(at + page()); });
  keeps("unregister", HP_OK, [&] { return hp_unregister(at); });
  keeps("not found", HP_E_NOT_FOUND, [&] { return hp_unregister(at + 1); });
  keeps("unregister all", HP_OK, [&] { return hp_unregister_all(kNoLimit); });
}

// ---- Records of what is not pinned

TEST_CASE("a refused registration leaves a record that one unregister ends") {
  const Fresh fresh;
  const Memory memory(4 * page());
  fail_next("register", 801, 2);
  REQUIRE(hp_register(memory.at(5), page(), 0) == HP_PAGEABLE);
  CHECK(contains(hp_last_error(), register_name()));
  REQUIRE(hp_register(memory.at(5), page(), 0) == HP_PAGEABLE);
  CHECK(hp_query(memory.at(5), page(), nullptr) == HP_PAGEABLE);
  CHECK(stats().registrations == 0);
  CHECK(stats().pinned_bytes == 0);
  const uint64_t calls = pin_calls();
  CHECK(hp_unregister(memory.at(5)) == HP_OK);
  CHECK(stats().pageable_bytes == page());
  CHECK(hp_unregister(memory.at(5)) == HP_OK);
  CHECK(stats().pageable_bytes == 0);
  CHECK(hp_unregister(memory.at(5)) == HP_E_NOT_FOUND);
  CHECK(pin_calls() == calls);
}

TEST_CASE("a later registration replaces a record") {
  const Fresh fresh;
  const Memory memory(4 * page());
  const size_t len = GENERATE_COPY(page(), 2 * page(), size_t{1});
  fail_next("register", 801, 3);
  REQUIRE(hp_register(memory.at(), page(), 0) == HP_PAGEABLE);
  REQUIRE(hp_register(memory.at(), page(), 0) == HP_PAGEABLE);
  SECTION("that is pinned") {
    REQUIRE(hp_register(memory.at(), len, HP_REGISTER_REQUIRED) == HP_E_REFUSED);  // and one that is not changes nothing
    CHECK(stats().pageable_bytes == page());
    REQUIRE(hp_register(memory.at(), len, 0) == HP_OK);
    CHECK(stats().pageable_bytes == 0);
    CHECK(region(memory.at(), len).references == 1);
    REQUIRE(hp_unregister(memory.at()) == HP_OK);
  }
  SECTION("that is refused with another length") {
    REQUIRE(hp_register(memory.at(), 3 * page(), 0) == HP_PAGEABLE);
    CHECK(stats().pageable_bytes == 3 * page());
    REQUIRE(hp_unregister(memory.at()) == HP_OK);
  }
  CHECK(stats().pageable_bytes == 0);
  CHECK(hp_unregister(memory.at()) == HP_E_NOT_FOUND);
}

TEST_CASE("with REQUIRED a refusal is an error that changes nothing") {
  const Fresh fresh;
  const Memory memory(4 * page());
  fail_next("register", 801);
  CHECK(hp_register(memory.at(), page(), HP_REGISTER_REQUIRED) == HP_E_REFUSED);
  CHECK(hp_last_native_error() == 801);
  CHECK(hp_unregister(memory.at()) == HP_E_NOT_FOUND);
  CHECK(stats().pageable_bytes == 0);

  // An older record stays, and still counts as often as it did.
  fail_next("register", 801, 3);
  REQUIRE(hp_register(memory.at(), page(), 0) == HP_PAGEABLE);
  REQUIRE(hp_register(memory.at(), page(), 0) == HP_PAGEABLE);
  CHECK(hp_register(memory.at(), page(), HP_REGISTER_REQUIRED) == HP_E_REFUSED);
  CHECK(stats().pageable_bytes == page());
  CHECK(hp_unregister(memory.at()) == HP_OK);
  CHECK(hp_unregister(memory.at()) == HP_OK);
  CHECK(hp_unregister(memory.at()) == HP_E_NOT_FOUND);
}

// ---- Memory that somebody else has pinned

TEST_CASE("memory that others have pinned in whole is foreign and never released by us") {
  const Fresh fresh;
  const Memory memory(16 * page());
  const uint32_t flags = GENERATE(0u, HP_REGISTER_REQUIRED);
  REQUIRE(hps_pin_foreign(vendor(), memory.page_at(4), 4 * page()) == 0);
  struct Range {
    size_t offset, len;
  };
  const auto r = GENERATE_COPY(Range{4 * page(), 4 * page()}, Range{5 * page(), page()}, Range{5 * page() + 3, page()},
                               Range{6 * page(), 2 * page()});
  CHECK(hp_register(memory.at(r.offset), r.len, flags) == HP_FOREIGN);
  CHECK(contains(hp_last_error(), hex(memory.at(r.offset / page() * page()))));
  const hp_region found = region(memory.at(r.offset), r.len);
  CHECK(found.foreign == 1);
  CHECK(found.one_segment == 1);
  CHECK(found.stuck == 0);
  CHECK(found.references == 1);
  CHECK(stats().foreign_bytes == r.len);
  void *device = nullptr;
  CHECK(hp_device_pointer(memory.at(r.offset), &device) == HP_E_NOT_FOUND);
  CHECK(hp_unregister(memory.at(r.offset)) == HP_OK);
  CHECK(hp_unregister(memory.at(r.offset)) == HP_E_NOT_FOUND);
  CHECK(hp_query(memory.at(r.offset), r.len, nullptr) == HP_PAGEABLE);
  CHECK(hps_calls("unregister") == 0);
  CHECK(hps_pinned(memory.page_at(4), 4 * page()) == HPS_ALL);
  CHECK(stats().foreign_bytes == 0);
  CHECK(stats().pageable_bytes == 0);
  REQUIRE(hps_unpin_foreign(vendor(), memory.page_at(4)) == 0);
}

TEST_CASE("memory that others have pinned in part is refused") {
  const Fresh fresh;
  const Memory memory(16 * page());
  const uint32_t flags = GENERATE(0u, HP_REGISTER_REQUIRED);
  const int32_t refused = flags ? HP_E_REFUSED : HP_PAGEABLE;
  REQUIRE(hps_pin_foreign(vendor(), memory.page_at(4), 4 * page()) == 0);
  struct Range {
    size_t first, pages;
  };
  const auto r = GENERATE(Range{3, 2}, Range{7, 2}, Range{0, 16}, Range{4, 5}, Range{3, 5});
  CAPTURE(r.first, r.pages);
  CHECK(hp_register(memory.page_at(r.first), r.pages * page(), flags) == refused);
  CHECK(contains(hp_last_error(), "hint: other code in this process pinned a part"));
  CHECK(hps_live_registrations() == 0);
  CHECK(hp_query(memory.page_at(r.first), r.pages * page(), nullptr) == HP_PAGEABLE);
  CHECK(hp_query(memory.page_at(5), 1, nullptr) == HP_PAGEABLE);
  CHECK(hp_unregister(memory.page_at(r.first)) == (flags ? HP_E_NOT_FOUND : HP_OK));
  CHECK(hps_calls("unregister") == 0);
  CHECK(hps_pinned(memory.page_at(4), 4 * page()) == HPS_ALL);
  REQUIRE(hps_unpin_foreign(vendor(), memory.page_at(4)) == 0);
}

TEST_CASE("foreign means all of it: what we have pinned ourselves does not count") {
  const Fresh fresh;
  const Memory memory(8 * page());
  REQUIRE(hp_register(memory.page_at(2), page(), 0) == HP_OK);
  REQUIRE(hps_pin_foreign(vendor(), memory.page_at(3), page()) == 0);
  CHECK(hp_register(memory.page_at(2), 2 * page(), 0) == HP_E_EXISTS);
  CHECK(hp_register(memory.at(2 * page() + 1), 2 * page() - 1, 0) == HP_PAGEABLE);
  CHECK(hp_register(memory.page_at(1), 3 * page(), HP_REGISTER_REQUIRED) == HP_E_REFUSED);
  CHECK(hps_live_registrations() == 1);
  REQUIRE(hp_unregister(memory.page_at(2)) == HP_OK);
  CHECK(hp_query(memory.at(2 * page() + 1), page(), nullptr) == HP_PAGEABLE);
  CHECK(hp_unregister(memory.at(2 * page() + 1)) == HP_OK);
  REQUIRE(hps_unpin_foreign(vendor(), memory.page_at(3)) == 0);
}

TEST_CASE("foreign means all of it, also where it takes several calls to pin") {
  constexpr size_t kAlign = size_t{2} << 20;  // where segments are cut
  const uint64_t limit = backend().max_segment;
  const Fresh fresh;
  const Memory memory(2 * limit + page() + kAlign, PROT_NONE);
  const size_t first = (kAlign - memory.address() % kAlign) % kAlign;
  const size_t len = 2 * limit + page();
  const bool all = GENERATE(true, false);
  REQUIRE(hps_pin_foreign(vendor(), memory.at(first), limit) == 0);
  if (all) REQUIRE(hps_pin_foreign(vendor(), memory.at(first + limit), limit + page()) == 0);
  CHECK(hp_register(memory.at(first), len, 0) == (all ? HP_FOREIGN : HP_PAGEABLE));
  CHECK(hp_query(memory.at(first), len, nullptr) == (all ? HP_OK : HP_PAGEABLE));
  CHECK(contains(hp_last_error(), "hint: other code in this process pinned a part") == !all);
  CHECK(hps_live_registrations() == 0);
  CHECK(hps_calls("unregister") == (all ? 0 : 1));
  CHECK(hp_unregister(memory.at(first)) == HP_OK);
  REQUIRE(hps_unpin_foreign(vendor(), memory.at(first)) == 0);
  if (all) REQUIRE(hps_unpin_foreign(vendor(), memory.at(first + limit)) == 0);
}

TEST_CASE("foreign memory that was released in the meantime can be pinned") {
  const Fresh fresh;
  const Memory memory(4 * page());
  REQUIRE(hps_pin_foreign(vendor(), memory.at(), 2 * page()) == 0);
  REQUIRE(hp_register(memory.at(), 2 * page(), 0) == HP_FOREIGN);
  REQUIRE(hps_unpin_foreign(vendor(), memory.at()) == 0);
  REQUIRE(hp_register(memory.at(), 2 * page(), 0) == HP_OK);
  CHECK(region(memory.at(), 2 * page()).foreign == 0);
  CHECK(stats().foreign_bytes == 0);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
  CHECK(hp_query(memory.at(), 1, nullptr) == HP_PAGEABLE);
}

TEST_CASE("copies are cut at the borders of foreign memory, too") {
  const Fresh fresh;
  const Memory memory(8 * page());
  REQUIRE(hps_pin_foreign(vendor(), memory.page_at(2), 3 * page()) == 0);
  REQUIRE(hp_register(memory.page_at(2), 3 * page(), 0) == HP_FOREIGN);
  const hp_copy whole = {memory.at(), nullptr, 8 * page()};
  hp_copy parts[4] = {};
  size_t n = 0;
  REQUIRE(hp_split_copies(&whole, 1, parts, 4, &n) == HP_OK);
  REQUIRE(n == 3);
  CHECK(parts[0].bytes == 2 * page());
  CHECK(parts[1].bytes == 3 * page());
  CHECK(parts[2].bytes == 3 * page());
  REQUIRE(hp_unregister(memory.page_at(2)) == HP_OK);
  REQUIRE(hps_unpin_foreign(vendor(), memory.page_at(2)) == 0);
}

TEST_CASE("overlapping foreign records are each ended by themselves") {
  const Fresh fresh;
  const Memory memory(8 * page());
  REQUIRE(hps_pin_foreign(vendor(), memory.at(), 8 * page()) == 0);
  REQUIRE(hp_register(memory.page_at(1), 3 * page(), 0) == HP_FOREIGN);
  REQUIRE(hp_register(memory.page_at(2), 4 * page(), 0) == HP_FOREIGN);
  CHECK(hp_query(memory.page_at(1), 5 * page(), nullptr) == HP_OK);
  REQUIRE(hp_unregister(memory.page_at(1)) == HP_OK);
  CHECK(hp_query(memory.page_at(2), 4 * page(), nullptr) == HP_OK);
  REQUIRE(hp_unregister(memory.page_at(2)) == HP_OK);
  for (size_t i = 1; i < 6; ++i) CHECK(hp_query(memory.page_at(i), 1, nullptr) == HP_PAGEABLE);
  REQUIRE(hps_unpin_foreign(vendor(), memory.at()) == 0);
}

TEST_CASE("a foreign record of ranges says nothing of the gaps between them") {
  const Fresh fresh;
  const Memory memory(16 * page());
  for (size_t at : {0, 8}) REQUIRE(hps_pin_foreign(vendor(), memory.page_at(at), 4 * page()) == 0);
  const hp_range two[] = {{0, 4 * page()}, {8 * page(), 12 * page()}};
  const hp_range one[] = {{1 * page(), 3 * page()}};
  REQUIRE(hp_register_ranges(memory.at(), two, 2, 0) == HP_FOREIGN);
  CHECK(hp_query(memory.at(), 4 * page(), nullptr) == HP_OK);
  CHECK(hp_query(memory.page_at(8), 4 * page(), nullptr) == HP_OK);
  for (size_t i = 4; i < 8; ++i) CHECK(hp_query(memory.page_at(i), 1, nullptr) == HP_PAGEABLE);
  // Other ranges under the same base take the place of the first ones.
  REQUIRE(hp_register_ranges(memory.at(), one, 1, 0) == HP_FOREIGN);
  CHECK(hp_query(memory.page_at(1), 2 * page(), nullptr) == HP_OK);
  for (size_t i : {0, 3, 8, 11}) CHECK(hp_query(memory.page_at(i), 1, nullptr) == HP_PAGEABLE);
  CHECK(stats().foreign_bytes == 3 * page());
  CHECK(hp_unregister(memory.at()) == HP_OK);
  CHECK(hp_query(memory.page_at(1), 1, nullptr) == HP_PAGEABLE);
  CHECK(stats().foreign_bytes == 0);
  for (size_t at : {0, 8}) REQUIRE(hps_unpin_foreign(vendor(), memory.page_at(at)) == 0);
}

TEST_CASE("a refusal leaves a foreign record under the same base as it was") {
  const Fresh fresh;
  const Memory memory(8 * page());
  REQUIRE(hps_pin_foreign(vendor(), memory.at(), 4 * page()) == 0);
  REQUIRE(hp_register(memory.at(), 4 * page(), 0) == HP_FOREIGN);
  CHECK(hp_register(memory.at(), 8 * page(), HP_REGISTER_REQUIRED) == HP_E_REFUSED);
  CHECK(hp_query(memory.at(), 4 * page(), nullptr) == HP_OK);
  CHECK(hp_query(memory.page_at(4), 1, nullptr) == HP_PAGEABLE);
  CHECK(stats().foreign_bytes == 4 * page());
  CHECK(hp_register(memory.at(), 4 * page(), 0) == HP_FOREIGN);
  CHECK(hp_unregister(memory.at()) == HP_OK);
  CHECK(hp_unregister(memory.at()) == HP_OK);
  CHECK(hp_unregister(memory.at()) == HP_E_NOT_FOUND);
  CHECK(stats().foreign_bytes == 0);
  REQUIRE(hps_unpin_foreign(vendor(), memory.at()) == 0);
}

// ---- Everything at once

TEST_CASE("unregister_all with nothing registered") {
  const Fresh fresh;
  CHECK(hp_unregister_all(0) == HP_OK);
  CHECK(hp_unregister_all(kNoLimit) == HP_OK);
  CHECK(hps_calls("unregister") == 0);
}

TEST_CASE("unregister_all ends every registration, whatever its count") {
  const Fresh fresh;
  const Memory memory(32 * page());
  for (int i = 0; i < 3; ++i) REQUIRE(hp_register(memory.page_at(1), 2 * page(), 0) == HP_OK);
  REQUIRE(hp_register(memory.page_at(2), 4 * page(), 0) == HP_OK);
  REQUIRE(hp_register(memory.at(9), 9, 0) == HP_OK);
  fail_next("register", 801);
  REQUIRE(hp_register(memory.page_at(20), page(), 0) == HP_PAGEABLE);
  REQUIRE(hps_pin_foreign(vendor(), memory.page_at(28), page()) == 0);
  REQUIRE(hp_register(memory.page_at(28), page(), 0) == HP_FOREIGN);

  CHECK(hp_unregister_all(kNoLimit) == HP_OK);
  CHECK(hps_live_registrations() == 0);
  CHECK(hps_pinned(memory.page_at(28), page()) == HPS_ALL);
  const hp_stats all = stats();
  CHECK(all.registrations == 0);
  CHECK(all.pageable_bytes == 0);
  CHECK(all.foreign_bytes == 0);
  for (size_t i : {1, 2, 20, 28}) CHECK(hp_unregister(memory.page_at(i)) == HP_E_NOT_FOUND);
  REQUIRE(hps_unpin_foreign(vendor(), memory.page_at(28)) == 0);
}

TEST_CASE("unregister_all gives up at its deadline and goes on in the background") {
  const Fresh fresh;
  const Memory memory(32 * page());
  const uint64_t deadline = GENERATE(uint64_t{0}, uint64_t{1000}, uint64_t{20000000});
  for (size_t i = 0; i < 4; ++i) REQUIRE(hp_register(memory.page_at(2 * i), page(), 0) == HP_OK);
  hps_block("unregister");
  // The driver is inside a release, so whatever the time this cannot be done.
  CHECK(hp_unregister_all(deadline) == HP_E_TIMEOUT);
  CHECK(contains(hp_last_error(), std::to_string(deadline)));
  REQUIRE(hps_wait_blocked("unregister", 1, 60000) == 0);
  // Three wait for their turn and can be asked for; work on other memory goes on.
  size_t left = 0;
  for (size_t i = 0; i < 4; ++i) left += hp_query(memory.page_at(2 * i), page(), nullptr) == HP_OK;
  CHECK(left == 3);
  CHECK(stats().registrations == 3);
  CHECK(stats().pinned_bytes == 4 * page());
  REQUIRE(hp_register(memory.page_at(20), page(), 0) == HP_OK);
  CHECK(hp_unregister_all(deadline) == HP_E_TIMEOUT);

  hps_unblock("unregister");
  CHECK(hp_unregister_all(kNoLimit) == HP_OK);
  CHECK(hps_live_registrations() == 0);
  CHECK(hps_calls("unregister") == 5);
  for (size_t i = 0; i < 4; ++i) CHECK(hp_unregister(memory.page_at(2 * i)) == HP_E_NOT_FOUND);
}

TEST_CASE("unregister_all waits for a slow driver") {
  const Fresh fresh("delay=unregister:20");
  const Memory memory(32 * page());
  for (size_t i = 0; i < 4; ++i) REQUIRE(hp_register(memory.page_at(2 * i), page(), 0) == HP_OK);
  CHECK(hp_unregister_all(uint64_t{600} * 1000000000) == HP_OK);
  CHECK(hps_live_registrations() == 0);
}

TEST_CASE("unregister_all tells of what is stuck, and can be called again") {
  const Fresh fresh;
  const Memory memory(32 * page());
  for (size_t i = 0; i < 4; ++i) REQUIRE(hp_register(memory.page_at(2 * i), page(), 0) == HP_OK);
  fail_next("unregister", 1, 2, 1);
  CHECK(hp_unregister_all(kNoLimit) == HP_E_STUCK);
  CHECK(contains(hp_last_error(), "2 segment"));
  CHECK(hps_live_registrations() == 2);
  CHECK(stats().stuck_segments == 2);
  CHECK(stats().registrations == 0);
  CHECK(hp_unregister_all(kNoLimit) == HP_OK);
  CHECK(hps_calls("unregister") == 6);
}

// ---- Errors and log lines

TEST_CASE("each thread has its own last error") {
  const Fresh fresh;
  const Memory memory(4 * page());
  fail_next("register", 801);
  REQUIRE(hp_register(memory.at(), page(), HP_REGISTER_REQUIRED) == HP_E_REFUSED);
  const std::string ours = hp_last_error();
  CHECK(hp_last_native_error() == 801);
  std::string at_first, of_other;
  int64_t native_at_first = -1, native_of_other = -1;
  std::thread other([&] {
    at_first = hp_last_error();
    native_at_first = hp_last_native_error();
    if (hp_unregister(memory.at()) != HP_E_NOT_FOUND) return;
    of_other = hp_last_error();
    native_of_other = hp_last_native_error();
  });
  other.join();
  CHECK(at_first.empty());
  CHECK(native_at_first == 0);
  CHECK(contains(of_other, "no registration has the base"));
  CHECK(native_of_other == 0);
  CHECK(hp_last_error() == ours);
  CHECK(hp_last_native_error() == 801);
  // A success does not wipe it, the next failure does.
  REQUIRE(hp_register(memory.at(), page(), 0) == HP_OK);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
  CHECK(hp_last_error() == ours);
  CHECK(hp_unregister(nullptr) == HP_E_INVALID);
  CHECK(hp_last_error() != ours);
  CHECK(hp_last_native_error() == 0);
}

TEST_CASE("a refusal is told in full: call, code, name, range, flags, file") {
  const Fresh fresh;
  const Memory memory(4 * page());
  REQUIRE(hp_register(memory.page_at(0), page(), 0) == HP_OK);
  fail_next("register", 801);
  REQUIRE(hp_register(memory.at(5), 3 * page() - 5, HP_REGISTER_REQUIRED) == HP_E_REFUSED);
  const std::string text = hp_last_error();
  CAPTURE(text);
  CHECK(contains(text, register_name()));
  CHECK(contains(text, "801"));
  CHECK(contains(text, is_hip() ? "hipErrorNotSupported" : is_driver_only() ? "CUDA_ERROR_NOT_SUPPORTED" : "cudaErrorNotSupported"));
  CHECK(contains(text, hex(memory.page_at(1))));           // the stretch that was refused
  CHECK(contains(text, std::to_string(2 * page())));       // its bytes
  CHECK(contains(text, "offset " + std::to_string(page() - 5)));
  CHECK(contains(text, runtime_file()));
  REQUIRE(hp_unregister(memory.page_at(0)) == HP_OK);
}

TEST_CASE("each cause of a refusal is logged once") {
  const Fresh fresh;
  const Memory memory(8 * page());
  const Log log;
  // Codes that no other test here uses, since a cause is logged once in a process.
  for (int code : {205, 206}) {
    fail_next("register", code, 4);
    for (size_t i = 0; i < 4; ++i) REQUIRE(hp_register(memory.page_at(2 * i), page(), 0) == HP_PAGEABLE);
  }
  const auto lines = log.lines();
  REQUIRE(lines.size() == 2);
  CHECK(contains(lines[0].text, "failed: 205"));
  CHECK(contains(lines[1].text, "failed: 206"));
  for (const auto &line : lines) {
    CHECK(line.level == HP_LOG_WARN);
    CHECK(contains(line.text, "pageable"));
    CHECK_FALSE(contains(line.text, "\n"));
  }
  fail_next("register", 204, 2);
  REQUIRE(hp_register(memory.at(), page(), HP_REGISTER_REQUIRED) == HP_E_REFUSED);
  CHECK(log.count("failed: 204") == 0);  // an error is the caller's to report
  REQUIRE(hp_register(memory.at(), page(), 0) == HP_PAGEABLE);
  CHECK(log.count("failed: 204") == 1);
}

TEST_CASE("one cause on several threads is one line") {
  const Fresh fresh("fail=register:*:207");
  const Memory memory(64 * page());
  const Log log;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 8; ++i)
        if (hp_register(memory.page_at(8 * t + i), page(), 0) != HP_PAGEABLE) std::abort();
    });
  for (auto &t : threads) t.join();
  CHECK(log.count("failed: 207") == 1);
  CHECK(log.lines().size() == 1);
}

TEST_CASE("a segment that is stuck is an error line, once") {
  const Fresh fresh;
  const Memory memory(4 * page());
  const Log log;
  REQUIRE(hp_register(memory.at(), page(), 0) == HP_OK);
  fail_next("unregister", 208, 2);
  CHECK(hp_unregister(memory.at()) == HP_E_STUCK);
  CHECK(hp_unregister(memory.at()) == HP_E_STUCK);
  const auto lines = log.lines();
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].level == HP_LOG_ERROR);
  CHECK(contains(lines[0].text, "do not unmap"));
  CHECK(contains(lines[0].text, unregister_name()));
  CHECK(contains(lines[0].text, "208"));
  CHECK(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("the callback in force is the last one set, with its own user pointer") {
  const Fresh fresh;
  const Memory memory(4 * page());
  const Log first;
  {
    const Log second;
    fail_next("register", 209);
    REQUIRE(hp_register(memory.at(), page(), 0) == HP_PAGEABLE);
    CHECK(second.lines().size() == 1);
  }
  CHECK(first.lines().empty());
}

// ---- What a failed call leaves behind

TEST_CASE("a failed call leaves the thread's last error as it was", "[last-error]") {
  const Fresh fresh;
  const Memory memory(4 * page());
  const char *drain = last_error_function();
  const auto refused = [&] { return hp_register(memory.at(), page(), HP_REGISTER_REQUIRED) == HP_E_REFUSED; };

  SECTION("clean stays clean, with one call that takes the error away") {
    fail_next("register", 801);
    CHECK(refused());
    CHECK(hps_calls(drain) == 1);
    CHECK(hps_last_error(nullptr) == 0);
  }
  SECTION("so do a failed release and a failed device pointer") {
    REQUIRE(hp_register(memory.at(), page(), 0) == HP_OK);
    CHECK(hps_calls(drain) == 0);
    fail_next(device_pointer_function(), 1);
    void *device = nullptr;
    if (!is_hip()) {
      CHECK(hp_device_pointer(memory.at(), &device) == HP_E_UNSUPPORTED);
      CHECK(hps_calls(drain) == 1);
    }
    const uint64_t before = hps_calls(drain);
    fail_next("unregister", 1);
    CHECK(hp_unregister(memory.at()) == HP_E_STUCK);
    CHECK(hps_calls(drain) == before + 1);
    CHECK(hps_last_error(nullptr) == 0);
    CHECK(hp_unregister(memory.at()) == HP_OK);
    CHECK(hps_calls(drain) == before + 1);
  }
  SECTION("an error that was pending is the application's: no call") {
    hps_set_last_error(nullptr, 700);
    fail_next("register", 801);
    CHECK(refused());
    CHECK(hps_calls(drain) == 0);
    CHECK(hps_last_error(nullptr) != 0);
  }
  SECTION("a success takes nothing away") {
    hps_set_last_error(nullptr, 700);
    REQUIRE(hp_register(memory.at(), page(), 0) == HP_OK);
    REQUIRE(hp_unregister(memory.at()) == HP_OK);
    CHECK(hps_calls(drain) == 0);
    CHECK(hps_last_error(nullptr) == 700);
  }
  SECTION("a runtime that never clears is asked once") {
    script("sticky=1");
    fail_next("register", 801);
    CHECK(refused());
    CHECK(hps_calls(drain) == 1);
  }
  SECTION("each thread by itself") {
    hps_set_last_error(nullptr, 700);  // of this thread
    script("fail=register:*:801");
    int32_t left_in_other = -1;
    std::thread other([&] {
      if (refused()) left_in_other = hps_last_error(nullptr);
    });
    other.join();
    CHECK(left_in_other == 0);
    CHECK(hps_calls(drain) == 1);
    CHECK(refused());
    CHECK(hps_calls(drain) == 1);
    CHECK(hps_last_error(nullptr) != 0);
  }
  SECTION("memory of others") {
    REQUIRE(hps_pin_foreign(vendor(), memory.at(), page()) == 0);
    CHECK(hp_register(memory.at(), page(), 0) == HP_FOREIGN);
    CHECK(hps_last_error(nullptr) == 0);
    CHECK(hps_calls(drain) <= 1);
    CHECK(hp_unregister(memory.at()) == HP_OK);
    REQUIRE(hps_unpin_foreign(vendor(), memory.at()) == 0);
  }
}

// ---- Stream capture

namespace {

// Another thread, in the middle of a capture.
class Capture {
public:
  explicit Capture(int32_t mode) : thread_([this, mode] {
    hps_capture_begin(mode);
    begun_.unlock();
    end_.lock();
    result_ = hps_capture_end();
  }) {
    begun_.lock();
  }
  int32_t end() {
    end_.unlock();
    thread_.join();
    return result_;
  }

private:
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false;
    void unlock() {
      const std::lock_guard lock(mutex);
      open = true;
      changed.notify_all();
    }
    void lock() {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return open; });
    }
  };
  Gate begun_, end_;
  int32_t result_ = -1;
  std::thread thread_;
};

int capture_mode_of_this_thread() {
  int mode = HPS_CAPTURE_GLOBAL;
  REQUIRE(vendor_call(runtime_file(), exchange_function(), &mode) == 0);
  int ignored = mode;
  REQUIRE(vendor_call(runtime_file(), exchange_function(), &ignored) == 0);
  return mode;
}

}  // namespace

TEST_CASE("another thread's capture neither forbids a registration nor is broken by it") {
  const Fresh fresh;
  const Memory memory(4 * page());
  const int32_t mode = GENERATE(HPS_CAPTURE_GLOBAL, HPS_CAPTURE_THREAD_LOCAL, HPS_CAPTURE_RELAXED);
  // An application may have chosen a mode for this thread.
  int chosen = GENERATE(HPS_CAPTURE_GLOBAL, HPS_CAPTURE_THREAD_LOCAL);
  const int kept = chosen;
  REQUIRE(vendor_call(runtime_file(), exchange_function(), &chosen) == 0);
  Capture capture(mode);
  CHECK(hp_register(memory.at(), page(), 0) == HP_OK);
  CHECK(capture_mode_of_this_thread() == kept);
  CHECK(hp_unregister(memory.at()) == HP_OK);
  CHECK(capture_mode_of_this_thread() == kept);
  fail_next("register", 801);
  CHECK(hp_register(memory.at(), page(), HP_REGISTER_REQUIRED) == HP_E_REFUSED);
  CHECK(capture_mode_of_this_thread() == kept);
  CHECK(capture.end() == 0);
}

TEST_CASE("where the mode cannot be changed a capture is a refusal with a hint") {
  const Fresh fresh(std::string("fail=") + exchange_function() + ":*:801");
  const Memory memory(4 * page());
  const hp_stats before = stats();
  Capture capture(HPS_CAPTURE_GLOBAL);
  CHECK(hp_register(memory.at(), page(), 0) == HP_PAGEABLE);
  CHECK(hp_last_native_error() == 900);
  CHECK(contains(hp_last_error(), "hint: a stream capture is under way"));
  CHECK(stats().failed_capture == before.failed_capture + 1);
  capture.end();
  // Nothing is remembered of it: after the capture it works.
  CHECK(hp_register(memory.at(), page(), 0) == HP_OK);
  CHECK(hp_unregister(memory.at()) == HP_OK);
}
