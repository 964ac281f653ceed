// Memory runs out, at each single allocation of the library in turn and against a limit of the process: that is a status, what
// was pinned before is pinned still, and nothing more.
#include "devices.h"
#include "scenario.h"

#include <dlfcn.h>
#include <sys/resource.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <new>

namespace {

using namespace scenario;

constexpr std::size_t size = 8 * page, mib = std::size_t{1} << 20;

// So many allocations of libhostpin are granted before one fails. Negative: all are.
std::atomic<long> granted{-1};

bool is_hostpin(const void *code) {
  Dl_info info{};
  return dladdr(code, &info) != 0 && info.dli_fname != nullptr && std::strstr(info.dli_fname, "libhostpin.so") != nullptr;
}

bool fails(const void *caller) {
  if (granted.load(std::memory_order_relaxed) < 0 || !is_hostpin(caller)) return false;
  return granted-- == 0;
}

// Makes each allocation fail in turn until the call needs no more; `check` runs after each failure, on the state that was
// there before the call. Gives how many there were.
template <class Call, class Check>
long each_allocation_fails(Call call, Check check) {
  for (long n = 0;; ++n) {
    CHECK(n < 1000);
    granted = n;
    const int32_t status = call();
    const bool failed = granted < 0;
    granted = -1;
    if (!failed) {
      CHECK_EQUAL(status, HP_OK);
      return n;
    }
    if (status == HP_OK) return n + 1;  // done without
    CHECK_EQUAL(status, HP_E_NO_MEMORY);
    check();
  }
}

// Of any use as an address only: nobody touches the memory.
char *address(std::size_t i) { return reinterpret_cast<char *>((std::size_t{1} << 40) + i * page); }

struct Before {
  std::size_t registrations = hps_live_registrations();
  hp_stats counters = stats();
};

void check_same(const Before &before) {
  const Before now;
  CHECK_EQUAL(now.registrations, before.registrations);
  CHECK_EQUAL(now.counters.registrations, before.counters.registrations);
  CHECK_EQUAL(now.counters.segments, before.counters.segments);
  CHECK_EQUAL(now.counters.pinned_bytes, before.counters.pinned_bytes);
  CHECK_EQUAL(now.counters.pageable_bytes, before.counters.pageable_bytes);
}

// From the very first call on, whose choice and tables need memory, too.
void first_register() {
  open_library(cudart12.c_str());
  char *memory = map_memory(size);
  const long allocations = each_allocation_fails([=] { return hp_register(memory, size, HP_REGISTER_REQUIRED); },
                                                 [=] {
                                                   CHECK_EQUAL(hps_live_registrations(), 0);
                                                   CHECK_EQUAL(hp_query(memory, 1, nullptr), HP_PAGEABLE);
                                                 });
  CHECK(allocations > 3);
  CHECK(hps_pinned(memory, size) == HPS_ALL);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
}

void first_register_without_backend() {
  hp_set_log_callback([](int32_t, const char *, void *) {}, nullptr);
  char *memory = map_memory(size);
  for (long n = 0, status = HP_E_NO_MEMORY; status != HP_PAGEABLE; ++n) {
    CHECK(n < 1000);
    granted = n;
    status = hp_register(memory, size, 0);
    granted = -1;
    CHECK(status == HP_PAGEABLE || status == HP_E_NO_MEMORY);
    CHECK_EQUAL(stats().pageable_bytes, status == HP_PAGEABLE ? size : 0);
  }
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
}

// With enough of them that the tables grow; every fourth spans segments of others.
void many_registers() {
  open_library(cudart12.c_str());
  CHECK(hps_script("maps=0") == 0);
  setenv("HOSTPIN_MAX_SEGMENT", "8K", 1);
  constexpr std::size_t many = 4000;
  char *const memory = address(0);
  CHECK_EQUAL(hp_register(memory, page, HP_REGISTER_REQUIRED), HP_OK);
  long allocations = 0;
  for (std::size_t i = 1; i + 1 < many; ++i) {
    const Before before;
    const std::size_t bytes = i % 4 ? size : 2 * size + page;
    allocations += each_allocation_fails([=] { return hp_register(memory + i * size, bytes, HP_REGISTER_REQUIRED); },
                                         [&] { check_same(before); });
  }
  CHECK(allocations > static_cast<long>(many) - 2);
  CHECK_EQUAL(hp_unregister_all(UINT64_MAX), HP_OK);
  CHECK_EQUAL(hps_live_registrations(), 0);
  CHECK_EQUAL(stats().segments, 0);
}

// Releasing needs no memory.
void unregister() {
  open_library(cudart12.c_str());
  CHECK(hps_script("maps=0") == 0);
  constexpr std::size_t many = 500;
  char *memory = map_memory(many * size);
  for (std::size_t i = 0; i < many; ++i)
    CHECK_EQUAL(hp_register(memory + i * size, size, HP_REGISTER_REQUIRED), HP_OK);
  for (std::size_t i = 0; i < many; ++i) {
    granted = 0;
    CHECK_EQUAL(hp_unregister(memory + i * 7 % many * size), HP_OK);
  }
  CHECK_EQUAL(granted, 0);
  granted = -1;
  CHECK_EQUAL(hps_live_registrations(), 0);
}

// The words of an error are not worth an end: the status is there all the same.
void last_error() {
  granted = 0;
  CHECK_EQUAL(hp_query(nullptr, 1, nullptr), HP_E_INVALID);
  granted = -1;
  CHECK(std::string_view(hp_last_error()).empty());
  CHECK_EQUAL(hp_query(nullptr, 1, nullptr), HP_E_INVALID);
  CHECK(contains(hp_last_error(), "ptr is NULL"));
}

void log_callback() {
  const CapturedStderr captured;
  granted = 0;
  hp_set_log_callback([](int32_t, const char *, void *) {}, nullptr);
  granted = -1;
  CHECK_EQUAL(captured.lines(), 1);
  CHECK(contains(captured.text(), "out of memory"));
}

void configure() {
  hp_config config{};
  config.struct_size = sizeof config;
  config.cudart = cudart12.c_str();
  config.amdhip = hip7.c_str();
  CHECK(each_allocation_fails([&] { return hp_configure(&config); }, [] {}) > 2);
  CHECK_EQUAL(hp_register(map_memory(page), page, HP_REGISTER_REQUIRED), HP_OK);
  CHECK(backend().runtime_file == cudart12);
}

// ---- A limit of the process

void limit_memory(std::size_t rest) {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit limit{};
  CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
  limit.rlim_cur = rest == SIZE_MAX ? limit.rlim_max : pages * page + rest;
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

void limit_without_backend() {
  hp_set_log_callback([](int32_t, const char *, void *) {}, nullptr);
  CHECK_EQUAL(hp_register(address(0), page, 0), HP_PAGEABLE);
  limit_memory(mib);
  std::size_t i = 1;
  while (hp_register(address(i), page, 0) == HP_PAGEABLE) CHECK(++i < 65536);
  CHECK_EQUAL(hp_register(address(i), page, 0), HP_E_NO_MEMORY);
  CHECK_EQUAL(stats().pageable_bytes, i * page);
  for (std::size_t k = 0; k < i; ++k) CHECK_EQUAL(hp_unregister(address(k)), HP_OK);
  CHECK_EQUAL(hp_register(address(i), page, 0), HP_PAGEABLE);
}

// Releasing everything wants a thread, and a thread a stack.
void limit_for_a_thread() {
  open_library(cudart12.c_str());
  char *memory = map_memory(size);
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  limit_memory(mib);
  CHECK_EQUAL(hp_unregister_all(UINT64_MAX), HP_E_NO_MEMORY);
  CHECK_EQUAL(hp_query(memory, size, nullptr), HP_OK);
  CHECK_EQUAL(hps_live_registrations(), 1);
  limit_memory(SIZE_MAX);
  CHECK_EQUAL(hp_unregister_all(UINT64_MAX), HP_OK);
  CHECK_EQUAL(hps_live_registrations(), 0);
}

} // namespace

// These come before libstdc++'s and libc's in the order of look-up. Every form, since any may be used.
namespace {

void *allocate(const void *caller, std::size_t bytes, std::size_t unit = alignof(std::max_align_t)) noexcept {
  return fails(caller) ? nullptr : std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
}

void *or_throw(void *memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

std::size_t unit_of(std::align_val_t alignment) { return static_cast<std::size_t>(alignment); }

} // namespace

#define CALLER __builtin_return_address(0)

void *operator new(std::size_t n) { return or_throw(allocate(CALLER, n)); }
void *operator new[](std::size_t n) { return or_throw(allocate(CALLER, n)); }
void *operator new(std::size_t n, std::align_val_t a) { return or_throw(allocate(CALLER, n, unit_of(a))); }
void *operator new[](std::size_t n, std::align_val_t a) { return or_throw(allocate(CALLER, n, unit_of(a))); }
void *operator new(std::size_t n, const std::nothrow_t &) noexcept { return allocate(CALLER, n); }
void *operator new[](std::size_t n, const std::nothrow_t &) noexcept { return allocate(CALLER, n); }
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete[](void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void *memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void *memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void *memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void *memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void *memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

// Reserved address space is made usable with this.
extern "C" int mprotect(void *start, std::size_t bytes, int protection) noexcept {
  static auto *const real = reinterpret_cast<int (*)(void *, std::size_t, int)>(dlsym(RTLD_NEXT, "mprotect"));
  if (!fails(CALLER)) return real(start, bytes, protection);
  errno = ENOMEM;
  return -1;
}

extern "C" char *strdup(const char *text) noexcept {
  const std::size_t bytes = std::strlen(text) + 1;
  void *memory = allocate(CALLER, bytes);
  return memory == nullptr ? nullptr : static_cast<char *>(std::memcpy(memory, text, bytes));
}

int main(int argc, char **argv) {
  return run_cases(argc, argv,
                   {{"first_register", first_register},
                    {"first_register_without_backend", first_register_without_backend},
                    {"many_registers", many_registers},
                    {"unregister", unregister},
                    {"last_error", last_error},
                    {"log_callback", log_callback},
                    {"configure", configure},
                    {"limit_without_backend", limit_without_backend},
                    {"limit_for_a_thread", limit_for_a_thread}});
}
