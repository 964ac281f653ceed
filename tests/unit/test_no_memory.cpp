// Every allocation inside the library fails once, in turn: the call says so and nothing is lost, or it does without.
#include <hostpin.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#include "catch.h"
#include "fake_cudart.h"

namespace {

// Allocations of this thread until one fails; negative: none does.
thread_local long until_failure = -1;
thread_local bool has_failed = false;

bool fails() noexcept {
  if (until_failure < 0 || until_failure-- > 0) return false;
  has_failed = true;
  return true;
}

void *allocate(size_t size, size_t alignment) noexcept {
  if (fails()) return nullptr;
  return alignment > __STDCPP_DEFAULT_NEW_ALIGNMENT__ ? std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment)
                                                      : std::malloc(size ? size : 1);
}

void *allocate_or_throw(size_t size, size_t alignment) {
  if (void *p = allocate(size, alignment)) return p;
  throw std::bad_alloc();
}

}  // namespace

void *operator new(size_t size) { return allocate_or_throw(size, 0); }
void *operator new[](size_t size) { return allocate_or_throw(size, 0); }
void *operator new(size_t size, std::align_val_t a) { return allocate_or_throw(size, static_cast<size_t>(a)); }
void *operator new[](size_t size, std::align_val_t a) { return allocate_or_throw(size, static_cast<size_t>(a)); }
void *operator new(size_t size, const std::nothrow_t &) noexcept { return allocate(size, 0); }
void *operator new[](size_t size, const std::nothrow_t &) noexcept { return allocate(size, 0); }
void operator delete(void *p) noexcept { std::free(p); }
void operator delete[](void *p) noexcept { std::free(p); }
void operator delete(void *p, size_t) noexcept { std::free(p); }
void operator delete[](void *p, size_t) noexcept { std::free(p); }
void operator delete(void *p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void *p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void *p, size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void *p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kReserved = size_t{4} << 30;
char *const kBase = static_cast<char *>(
    mmap(nullptr, kReserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));

// Makes the nth allocation in `call` fail, for each n, until it makes no nth one any more. `check` is told what came of it and
// whether an allocation failed, and leaves all as it was.
template <class Call, class Check>
void each_allocation(Call call, Check check) {
  for (long n = 0;; ++n) {
    CAPTURE(n);
    REQUIRE(n < 10000);
    until_failure = n;
    has_failed = false;
    const int32_t status = call();
    until_failure = -1;
    const bool failed = has_failed;
    check(status, failed);
    if (!failed) return;
  }
}

hp_stats stats() {
  hp_stats s{};
  s.struct_size = sizeof(s);
  REQUIRE(hp_get_stats(&s) == HP_OK);
  return s;
}

void nothing_is_pinned() {
  const hp_stats s = stats();
  CHECK(fake::pinned() == 0);
  CHECK(s.registrations == 0);
  CHECK(s.segments == 0);
  CHECK(s.pinned_bytes == 0);
  CHECK(s.stuck_segments == 0);
}

// Registered, or nothing of it and a plain status; then gone again.
void check_register(void *ptr, size_t len, int32_t status, bool failed, size_t others = 0) {
  if (!failed) CHECK(status == HP_OK);
  if (status == HP_OK) {
    CHECK(hp_query(ptr, len, nullptr) == HP_OK);
    CHECK(fake::pinned() > others);
    CHECK(hp_unregister(ptr) == HP_OK);
  } else {
    CHECK(status == HP_E_NO_MEMORY);
    CHECK(hp_unregister(ptr) == HP_E_NOT_FOUND);
  }
  CHECK(fake::pinned() == others);
  CHECK(stats().segments == others);
  CHECK(stats().pinned_bytes == others * kPage);
}

}  // namespace

// Must come first: it holds for the first call of a process.
TEST_CASE("the first registration of a process") {
  hp::loader = {[](const char *, int) -> void * { return &fake::runtime; }, fake::symbol,
                [](int (*)(dl_phdr_info *, size_t, void *), void *) { return 0; }};
  REQUIRE(kBase != MAP_FAILED);
  hp_config config{};
  config.struct_size = sizeof(config);
  config.cudart = "/somewhere/libcudart.so.12";
  config.backend = HP_BACKEND_CUDA;
  each_allocation([&] { return hp_configure(&config); },
                  [](int32_t status, bool failed) { CHECK(status == (failed ? HP_E_NO_MEMORY : HP_OK)); });
  // What one attempt could not do the next one does; an attempt never decides that there is no backend.
  each_allocation([] { return hp_register(kBase, 3 * kPage, 0); },
                  [](int32_t status, bool failed) { check_register(kBase, 3 * kPage, status, failed); });
  CHECK(fake::runtime.count_calls >= 1);
}

TEST_CASE("a registration") {
  each_allocation([] { return hp_register(kBase + 100, 3 * kPage, 0); },
                  [](int32_t status, bool failed) { check_register(kBase + 100, 3 * kPage, status, failed); });
  nothing_is_pinned();
}

TEST_CASE("a registration around others") {
  for (size_t i = 0; i < 5; ++i) REQUIRE(hp_register(kBase + (2 * i + 1) * kPage, kPage, 0) == HP_OK);
  each_allocation([] { return hp_register(kBase, 11 * kPage, 0); },
                  [](int32_t status, bool failed) { check_register(kBase, 11 * kPage, status, failed, 5); });
  for (size_t i = 0; i < 5; ++i) REQUIRE(hp_unregister(kBase + (2 * i + 1) * kPage) == HP_OK);
  nothing_is_pinned();
}

TEST_CASE("a registration that is cut smaller when it is refused") {
  fake::runtime.largest = size_t{512} << 20;
  each_allocation([] { return hp_register(kBase, kReserved, 0); },
                  [](int32_t status, bool failed) { check_register(kBase, kReserved, status, failed); });
  fake::runtime.largest = SIZE_MAX;
  nothing_is_pinned();
}

TEST_CASE("a registration that is refused") {
  fake::runtime.register_code = 801;
  each_allocation([] { return hp_register(kBase, kPage, 0); },
                  [](int32_t status, bool failed) {
                    if (!failed) CHECK(status == HP_PAGEABLE);
                    CHECK((status == HP_PAGEABLE || status == HP_E_NO_MEMORY));
                    CHECK(hp_unregister(kBase) == (status == HP_PAGEABLE ? HP_OK : HP_E_NOT_FOUND));
                    nothing_is_pinned();
                    CHECK(stats().pageable_bytes == 0);
                  });
  fake::runtime.register_code = 0;
}

TEST_CASE("a release") {
  each_allocation(
      [] {
        const long keep = until_failure;
        until_failure = -1;
        const int32_t made = hp_register(kBase, kPage, 0);
        until_failure = keep;
        return made == HP_OK ? hp_unregister(kBase) : made;
      },
      [](int32_t status, bool) {
        CHECK((status == HP_OK || status == HP_E_NO_MEMORY));
        if (status != HP_OK) CHECK(hp_unregister(kBase) == HP_OK);
        nothing_is_pinned();
      });
}

TEST_CASE("a release that fails") {
  REQUIRE(hp_register(kBase, kPage, 0) == HP_OK);
  fake::runtime.release_code = 1;
  each_allocation([] { return hp_unregister(kBase); },
                  [](int32_t status, bool) { CHECK((status == HP_E_STUCK || status == HP_E_NO_MEMORY)); });
  CHECK(stats().stuck_segments == 1);
  fake::runtime.release_code = 0;
  CHECK(hp_unregister(kBase) == HP_OK);
  nothing_is_pinned();
}

TEST_CASE("everything at once") {
  each_allocation(
      [] {
        const long keep = until_failure;
        until_failure = -1;
        const int32_t made = hp_register(kBase, kPage, 0);
        until_failure = keep;
        return made == HP_OK ? hp_unregister_all(UINT64_MAX) : made;
      },
      [](int32_t status, bool) {
        CHECK((status == HP_OK || status == HP_E_NO_MEMORY));
        if (status != HP_OK) CHECK(hp_unregister_all(UINT64_MAX) == HP_OK);
        nothing_is_pinned();
      });
}

TEST_CASE("asking needs no memory") {
  REQUIRE(hp_register(kBase, kPage, 0) == HP_OK);
  until_failure = 0;
  has_failed = false;
  hp_region region{};
  region.struct_size = sizeof(region);
  hp_stats s{};
  s.struct_size = sizeof(s);
  hp_backend_info info{};
  info.struct_size = sizeof(info);
  void *device = nullptr;
  const bool ok = hp_query(kBase, kPage, &region) == HP_OK && hp_query(kBase, 2 * kPage, &region) == HP_PAGEABLE &&
                  hp_get_stats(&s) == HP_OK && hp_get_backend(&info) == HP_OK && hp_device_pointer(kBase, &device) == HP_OK &&
                  hp_register(kBase, kPage, 0) == HP_OK && hp_unregister(kBase) == HP_OK;
  const bool allocated = has_failed;
  until_failure = -1;
  CHECK(ok);
  CHECK_FALSE(allocated);
  CHECK(hp_unregister(kBase) == HP_OK);
}

TEST_CASE("a log callback") {
  static std::atomic<int> lines{0};
  fake::runtime.register_code = 801;
  each_allocation(
      [] {
        hp_set_log_callback([](int32_t, const char *, void *) { ++lines; }, nullptr);
        return 0;
      },
      [](int32_t, bool) { hp_set_log_callback(nullptr, nullptr); });
  fake::runtime.register_code = 0;
}
