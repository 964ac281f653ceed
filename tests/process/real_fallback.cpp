// libhostpin over a vendor's real library on a machine without a device: HOSTPIN_BACKEND says which one is tried.
//   real_fallback REASON    REASON: what must stand in the reason that hp_get_backend gives for it
#include "real_hostpin.h"
#include "real_spy.h"

#include <malloc.h>

#include <algorithm>

namespace {

constexpr std::size_t size = std::size_t{1} << 20;

std::string_view reason(const hp_backend_info &info) {
  const std::string_view wanted = std::getenv("HOSTPIN_BACKEND");
  return wanted == "cuda" ? info.cuda_reason : wanted == "hip" ? info.hip_reason : info.level_zero_reason;
}

void register_often(char *memory, int times) {
  for (int i = 0; i < times; ++i) CHECK_EQUAL(hp_register(memory, size, 0), HP_PAGEABLE);
}

struct Footprint {
  long calls = spy::calls(), files = real::open_files(), threads = real::threads();
  // Last, because glibc counts what the above freed into its cache as used.
  std::size_t heap = mallinfo2().uordblks;
};

// What the first calls brought in may stay; the next add nothing and ask nobody.
void check_thousand_calls(char *memory) {
  const real::CapturedStderr captured;
  register_often(memory, 1);
  const Footprint first;
  CHECK(first.calls > 0);
  register_often(memory, 9);
  const Footprint before;
  register_often(memory, 990);
  const Footprint after;
  CHECK_EQUAL(after.calls, first.calls);
  CHECK_EQUAL(after.files, first.files);
  CHECK_EQUAL(after.threads, first.threads);
  CHECK_EQUAL(after.heap, before.heap);
  CHECK_EQUAL(captured.lines(), 1);
}

void check_reason(std::string_view expected) {
  const hp_backend_info info = real::backend();
  CHECK_EQUAL(info.backend, HP_BACKEND_NONE);
  CHECK_EQUAL(info.device_count, 0);
  if (!real::contains(reason(info), expected))
    real::fail(__FILE__, __LINE__, expected.data(), "is not in: " + std::string(reason(info)));
  CHECK(real::contains(hp_last_error(), expected));
}

void check_memory_is_ordinary(char *memory) {
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_E_UNAVAILABLE);
  CHECK_EQUAL(hp_query(memory, size, nullptr), HP_PAGEABLE);
  void *device = nullptr;
  CHECK_EQUAL(hp_device_pointer(memory, &device), HP_E_NOT_FOUND);
  for (int i = 0; i < 1000; ++i) CHECK_EQUAL(hp_unregister(memory), HP_OK);
  CHECK_EQUAL(hp_unregister(memory), HP_E_NOT_FOUND);
  CHECK(std::all_of(memory, memory + size, [](char byte) { return byte == 1; }));
  CHECK_EQUAL(real::stats().vendor_calls, 0);
}

} // namespace

int main(int argc, char **argv) {
  CHECK_EQUAL(argc, 2);
  char *memory = real::map_memory(size);
  check_thousand_calls(memory);
  check_reason(argv[1]);
  check_memory_is_ordinary(memory);
}
