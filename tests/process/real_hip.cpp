// libhostpin over AMD's libamdhip64.so.5 and the stand-in of libhsa-runtime64.so.1: the success path, and what goes
// wrong on it.
#include "hostpin_hsa.h"
#include "real_hostpin.h"
#include "real_spy.h"

#include <thread>

namespace {

constexpr std::size_t page = 4096, size = std::size_t{1} << 20;
constexpr int out_of_memory = 2;

// The stand-in that libamdhip64 will find loaded under its soname.
struct StandIn {
  void *library = real::open_library("libhsa-runtime64.so.1");
  decltype(&hostpin_hsa_script) script = real::find<decltype(hostpin_hsa_script)>(library, "hostpin_hsa_script");
  decltype(&hostpin_hsa_count) count = real::find<decltype(hostpin_hsa_count)>(library, "hostpin_hsa_count");
  decltype(&hostpin_hsa_locks_at) locks_at =
      real::find<decltype(hostpin_hsa_locks_at)>(library, "hostpin_hsa_locks_at");
};

void backend_is_described() {
  const hp_backend_info info = real::backend();
  CHECK_EQUAL(info.backend, HP_BACKEND_HIP);
  CHECK(std::string_view(info.name) == "hip");
  CHECK(real::contains(info.runtime_file, "libamdhip64.so.5"));
  CHECK_EQUAL(info.runtime_version, 50221153);
  CHECK_EQUAL(info.device_count, 2);
  CHECK((info.capabilities & HP_CAP_DEVICE_POINTER) != 0);
  CHECK(std::string_view(info.hip_reason).empty());
}

void register_and_release() {
  const StandIn hsa;
  char *memory = real::map_memory(3 * size);
  char *inside = memory + size;
  CHECK_EQUAL(hp_register(inside, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(hsa.locks_at(inside), 1);
  CHECK_EQUAL(hsa.locks_at(inside + size - 1), 1);
  CHECK_EQUAL(hsa.locks_at(inside - 1), 0);
  CHECK_EQUAL(hsa.locks_at(inside + size), 0);
  const hp_region region = real::region(inside + 100, 100);
  CHECK_EQUAL(region.backend, HP_BACKEND_HIP);
  CHECK(region.start == reinterpret_cast<uintptr_t>(inside) && region.end == region.start + size);
  CHECK_EQUAL(region.one_segment, 1);
  CHECK_EQUAL(hp_unregister(inside), HP_OK);
  CHECK_EQUAL(hsa.locks_at(inside), 0);
  CHECK_EQUAL(hp_query(inside, 1, nullptr), HP_PAGEABLE);
  CHECK_EQUAL(hp_unregister(inside), HP_E_NOT_FOUND);
}

void device_pointers_keep_their_offset() {
  char *memory = real::map_memory(size);
  char *unaligned = memory + 100;
  CHECK_EQUAL(hp_register(unaligned, 5000, HP_REGISTER_REQUIRED), HP_OK);
  void *device = nullptr, *inside = nullptr;
  CHECK_EQUAL(hp_device_pointer(unaligned, &device), HP_OK);
  CHECK(device != unaligned);
  CHECK_EQUAL(reinterpret_cast<uintptr_t>(device) % page, 100);
  CHECK_EQUAL(hp_device_pointer(unaligned + 4999, &inside), HP_OK);
  CHECK(inside == static_cast<char *>(device) + 4999);
  CHECK_EQUAL(real::region(unaligned, 5000).host_address, 0);
  CHECK_EQUAL(hp_unregister(unaligned), HP_OK);
  CHECK_EQUAL(hp_device_pointer(unaligned, &device), HP_E_NOT_FOUND);
}

// HIP's bit 8 asks for coarse-grained memory, CUDA's for read-only.
void flags_are_translated() {
  char *memory = real::map_memory(size);
  const uint32_t all = HP_REGISTER_PORTABLE | HP_REGISTER_MAPPED | HP_REGISTER_READONLY;
  CHECK_EQUAL(hp_register(memory, size, all | HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(spy::latest_arguments("hipHostRegister")[2] & ~std::size_t{3}, 0);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
}

void refusal_leaves_nothing() {
  const StandIn hsa;
  char *memory = real::map_memory(size);
  CHECK_EQUAL(hp_register(memory, page, HP_REGISTER_REQUIRED), HP_OK);
  hsa.script("fail_lock_above=4096");
  const real::CapturedStderr captured;
  for (int i = 0; i < 3; ++i) CHECK_EQUAL(hp_register(memory + 2 * page, 4 * page, 0), HP_PAGEABLE);
  CHECK_EQUAL(hp_last_native_error(), out_of_memory);
  CHECK(real::contains(hp_last_error(), "hipHostRegister"));
  CHECK(real::contains(hp_last_error(), "hipErrorOutOfMemory"));
  CHECK_EQUAL(hp_register(memory + 2 * page, 4 * page, HP_REGISTER_REQUIRED), HP_E_REFUSED);
  CHECK_EQUAL(hsa.locks_at(memory + 2 * page), 0);
  CHECK_EQUAL(hsa.locks_at(memory), 1);
  CHECK_EQUAL(captured.lines(), 1);
  void *hip = real::open_library("libamdhip64.so.5");
  CHECK_EQUAL(real::find<int()>(hip, "hipPeekAtLastError")(), 0);
  hsa.script("fail_lock_above=0");
  CHECK_EQUAL(hp_register(memory + 2 * page, 4 * page, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(hp_unregister(memory + 2 * page), HP_OK);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
}

// HOSTPIN_MAX_SEGMENT cuts four megabytes into four segments; the third is refused.
void refused_segment_rolls_back_the_others() {
  const StandIn hsa;
  char *memory = real::map_memory(4 * size);
  CHECK_EQUAL(real::backend().max_segment, size);
  hsa.script("fail_lock_call=3");
  CHECK_EQUAL(hp_register(memory, 4 * size, HP_REGISTER_REQUIRED), HP_E_REFUSED);
  for (std::size_t i = 0; i < 4; ++i) CHECK_EQUAL(hsa.locks_at(memory + i * size), 0);
  CHECK_EQUAL(real::stats().segments, 0);
  CHECK_EQUAL(hp_register(memory, 4 * size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(real::stats().segments, 4);
  CHECK_EQUAL(real::region(memory + size - 1, 2).one_segment, 0);
  for (std::size_t i = 0; i < 4; ++i) CHECK_EQUAL(hsa.locks_at(memory + i * size), 1);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  for (std::size_t i = 0; i < 4; ++i) CHECK_EQUAL(hsa.locks_at(memory + i * size), 0);
}

void two_devices() {
  const StandIn hsa;
  char *memory = real::map_memory(size);
  CHECK_EQUAL(real::backend().device_count, 2);
  hsa.script("fail_lock_call=2");
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_E_REFUSED);
  CHECK_EQUAL(hsa.locks_at(memory), 0);
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(hsa.locks_at(memory), 2);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  CHECK_EQUAL(hsa.locks_at(memory), 0);
}

void two_buffers_in_one_page() {
  const StandIn hsa;
  char *memory = real::map_memory(page);
  CHECK_EQUAL(hp_register(memory, 1000, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(hp_register(memory + 2000, 1000, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(hsa.locks_at(memory), 1);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  CHECK_EQUAL(hsa.locks_at(memory), 1);
  CHECK_EQUAL(hp_query(memory + 2000, 1000, nullptr), HP_OK);
  CHECK_EQUAL(hp_unregister(memory + 2000), HP_OK);
  CHECK_EQUAL(hsa.locks_at(memory), 0);
}

void superset(bool inner_first) {
  const StandIn hsa;
  char *memory = real::map_memory(3 * size), *inner = memory + size;
  CHECK_EQUAL(hp_register(inner, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(hp_register(memory, 3 * size, HP_REGISTER_REQUIRED), HP_OK);
  for (std::size_t i = 0; i < 3; ++i) CHECK_EQUAL(hsa.locks_at(memory + i * size), 1);
  CHECK_EQUAL(hp_unregister(inner_first ? inner : memory), HP_OK);
  CHECK_EQUAL(hsa.locks_at(inner), 1);
  CHECK_EQUAL(hsa.locks_at(memory), inner_first ? 1 : 0);
  CHECK_EQUAL(hp_unregister(inner_first ? memory : inner), HP_OK);
  for (std::size_t i = 0; i < 3; ++i) CHECK_EQUAL(hsa.locks_at(memory + i * size), 0);
}

void supersets() {
  superset(true);
  superset(false);
}

void interior_unregister_reaches_nobody() {
  const StandIn hsa;
  char *memory = real::map_memory(size);
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(hp_unregister(memory + page), HP_E_NOT_FOUND);
  CHECK_EQUAL(spy::calls("hipHostUnregister"), 0);
  CHECK_EQUAL(hsa.locks_at(memory), 1);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
}

// HIP would take the range twice and leak one lock.
void same_range_is_counted() {
  const StandIn hsa;
  char *memory = real::map_memory(size);
  for (int i = 0; i < 3; ++i) CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(spy::calls("hipHostRegister"), 1);
  CHECK_EQUAL(hp_register(memory, size - page, 0), HP_E_EXISTS);
  for (int i = 0; i < 3; ++i) {
    CHECK_EQUAL(hsa.locks_at(memory), 1);
    CHECK_EQUAL(hp_unregister(memory), HP_OK);
  }
  CHECK_EQUAL(hsa.locks_at(memory), 0);
  CHECK_EQUAL(spy::calls("hipHostUnregister"), 1);
}

void random_ranges() {
  const StandIn hsa;
  real::RandomRanges([&](const char *address) { return static_cast<long>(hsa.locks_at(address)); }, 1).run(3000);
}

void threads_register_their_own() {
  const StandIn hsa;
  char *memory = real::map_memory(8 * size);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 8; ++t)
    threads.emplace_back([own = memory + t * size, &hsa] {
      for (int i = 0; i < 100; ++i) {
        CHECK_EQUAL(hp_register(own, size, HP_REGISTER_REQUIRED), HP_OK);
        CHECK_EQUAL(hsa.locks_at(own), 1);
        CHECK_EQUAL(hp_unregister(own), HP_OK);
        CHECK_EQUAL(hsa.locks_at(own), 0);
      }
    });
  for (std::thread &thread : threads) thread.join();
  CHECK_EQUAL(real::stats().segments, 0);
}

void forked_child_reaches_nobody() {
  const StandIn hsa;
  char *memory = real::map_memory(2 * size);
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  const long calls = spy::calls();
  CHECK_EQUAL(real::signal_of_child([&] {
                void *device = nullptr;
                CHECK_EQUAL(hp_register(memory + size, size, 0), HP_E_FORKED);
                CHECK_EQUAL(hp_unregister(memory), HP_E_FORKED);
                CHECK_EQUAL(hp_unregister_all(UINT64_MAX), HP_E_FORKED);
                CHECK_EQUAL(hp_device_pointer(memory, &device), HP_E_FORKED);
                CHECK_EQUAL(hp_query(memory, size, nullptr), HP_PAGEABLE);
                CHECK_EQUAL(spy::calls(), calls);
              }),
              0);
  CHECK_EQUAL(hsa.locks_at(memory), 1);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  CHECK_EQUAL(hsa.locks_at(memory), 0);
}

void unregister_all() {
  const StandIn hsa;
  char *memory = real::map_memory(4 * size);
  for (std::size_t i = 0; i < 4; ++i) CHECK_EQUAL(hp_register(memory + i * size, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(hp_unregister_all(UINT64_MAX), HP_OK);
  for (std::size_t i = 0; i < 4; ++i) CHECK_EQUAL(hsa.locks_at(memory + i * size), 0);
}

void exit_with_live_registrations() {
  char *memory = real::map_memory(4 * size);
  for (std::size_t i = 0; i < 4; ++i) CHECK_EQUAL(hp_register(memory + i * size, size, HP_REGISTER_REQUIRED), HP_OK);
}

constexpr real::Case cases[] = {
    {"backend_is_described", backend_is_described},
    {"register_and_release", register_and_release},
    {"device_pointers_keep_their_offset", device_pointers_keep_their_offset},
    {"flags_are_translated", flags_are_translated},
    {"refusal_leaves_nothing", refusal_leaves_nothing},
    {"refused_segment_rolls_back_the_others", refused_segment_rolls_back_the_others},
    {"two_devices", two_devices},
    {"two_buffers_in_one_page", two_buffers_in_one_page},
    {"supersets", supersets},
    {"interior_unregister_reaches_nobody", interior_unregister_reaches_nobody},
    {"same_range_is_counted", same_range_is_counted},
    {"random_ranges", random_ranges},
    {"threads_register_their_own", threads_register_their_own},
    {"forked_child_reaches_nobody", forked_child_reaches_nobody},
    {"unregister_all", unregister_all},
    {"exit_with_live_registrations", exit_with_live_registrations},
};

} // namespace

int main(int argc, char **argv) { return real::run_case(argc, argv, cases); }
