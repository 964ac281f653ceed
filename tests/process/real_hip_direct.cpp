// What AMD's libamdhip64.so.5 does, by dlopen alone: without a device, and over the stand-in of libhsa-runtime64.so.1
// with some.
#include "hostpin_hsa.h"
#include "real_check.h"

#include <csignal>

namespace {

constexpr int no_device = 100, invalid_device = 101, invalid_value = 1, out_of_memory = 2, not_registered = 713;
constexpr std::size_t page = 4096, size = std::size_t{1} << 20;

struct Runtime {
  void *library = real::open_library("libamdhip64.so.5");
  int (*host_register)(void *, std::size_t,
                       unsigned) = real::find<int(void *, std::size_t, unsigned)>(library, "hipHostRegister");
  int (*host_unregister)(void *) = real::find<int(void *)>(library, "hipHostUnregister");
  int (*device_pointer)(void **, void *,
                        unsigned) = real::find<int(void **, void *, unsigned)>(library, "hipHostGetDevicePointer");
  int (*device_count)(int *) = real::find<int(int *)>(library, "hipGetDeviceCount");
  int (*last_error)() = real::find<int()>(library, "hipGetLastError");
  int (*peek_error)() = real::find<int()>(library, "hipPeekAtLastError");
};

// The stand-in that the dynamic loader took for libamdhip64.
struct StandIn {
  void *library = real::open_library("libhsa-runtime64.so.1");
  decltype(&hostpin_hsa_script) script = real::find<decltype(hostpin_hsa_script)>(library, "hostpin_hsa_script");
  decltype(&hostpin_hsa_locks_at) locks_at =
      real::find<decltype(hostpin_hsa_locks_at)>(library, "hostpin_hsa_locks_at");
};

void no_device_at_all() {
  const Runtime hip;
  char *memory = real::map_memory(size);
  int devices = 77;
  CHECK_EQUAL(hip.device_count(&devices), no_device);
  CHECK_EQUAL(devices, 0);
  CHECK_EQUAL(hip.host_register(memory, size, 0), invalid_device);
  CHECK_EQUAL(hip.host_unregister(memory), invalid_device);
  for (int i = 0; i < 3; ++i) CHECK_EQUAL(hip.last_error(), invalid_device);
  const long files = real::open_files(), threads = real::threads();
  for (int i = 0; i < 1000; ++i) CHECK_EQUAL(hip.host_register(memory, size, 0), invalid_device);
  CHECK_EQUAL(real::open_files(), files);
  CHECK_EQUAL(real::threads(), threads);
}

void register_and_release() {
  const Runtime hip;
  const StandIn hsa;
  char *memory = real::map_memory(size);
  int devices = 0;
  CHECK_EQUAL(hip.device_count(&devices), 0);
  CHECK_EQUAL(devices, 1);
  CHECK_EQUAL(hip.host_register(memory, size, 0), 0);
  CHECK_EQUAL(hsa.locks_at(memory), 1);
  CHECK_EQUAL(hsa.locks_at(memory + size - 1), 1);
  CHECK_EQUAL(hsa.locks_at(memory + size), 0);
  void *device = nullptr, *inside = nullptr;
  CHECK_EQUAL(hip.device_pointer(&device, memory, 0), 0);
  CHECK(device != memory);
  CHECK_EQUAL(hip.device_pointer(&inside, memory + 100, 0), 0);
  CHECK(inside == static_cast<char *>(device) + 100);
  CHECK_EQUAL(hip.host_unregister(memory), 0);
  CHECK_EQUAL(hsa.locks_at(memory), 0);
  CHECK_EQUAL(hip.host_unregister(memory), not_registered);
}

void bad_arguments() {
  const Runtime hip;
  char *memory = real::map_memory(size);
  CHECK_EQUAL(hip.host_register(nullptr, size, 0), invalid_value);
  CHECK(hip.host_register(memory, 0, 0) != 0);
}

void refused_lock() {
  const Runtime hip;
  const StandIn hsa;
  char *memory = real::map_memory(size);
  hsa.script("fail_lock_above=4096");
  CHECK_EQUAL(hip.host_register(memory, size, 0), out_of_memory);
  CHECK_EQUAL(hip.peek_error(), out_of_memory);
  CHECK_EQUAL(hip.last_error(), out_of_memory);
  CHECK_EQUAL(hip.last_error(), 0);
  CHECK_EQUAL(hsa.locks_at(memory), 0);
  hsa.script("fail_lock_above=0");
  CHECK_EQUAL(hip.host_register(memory, size, 0), 0);
  CHECK_EQUAL(hip.host_unregister(memory), 0);
}

void two_devices() {
  const Runtime hip;
  const StandIn hsa;
  char *memory = real::map_memory(size);
  int devices = 0;
  CHECK_EQUAL(hip.device_count(&devices), 0);
  CHECK_EQUAL(devices, 2);
  CHECK_EQUAL(hip.host_register(memory, size, 0), 0);
  CHECK_EQUAL(hsa.locks_at(memory), 2);
  CHECK_EQUAL(hip.host_unregister(memory), 0);
  CHECK_EQUAL(hsa.locks_at(memory), 0);
}

// What libhostpin must keep its caller from: 5.2.3 takes any overlap, forgets one of two locks of the same base, and
// ends the process when it is given an address inside a registration.
void overlaps_are_taken() {
  const Runtime hip;
  char *memory = real::map_memory(3 * size);
  CHECK_EQUAL(hip.host_register(memory + size, size, 0), 0);
  CHECK_EQUAL(hip.host_register(memory + size + page, page, 0), 0);
  CHECK_EQUAL(hip.host_register(memory + size + size / 2, size, 0), 0);
  CHECK_EQUAL(hip.host_register(memory, 3 * size, 0), 0);
}

void duplicate_leaks() {
  const Runtime hip;
  const StandIn hsa;
  char *memory = real::map_memory(size);
  CHECK_EQUAL(hip.host_register(memory, size, 0), 0);
  CHECK_EQUAL(hip.host_register(memory, size, 0), 0);
  CHECK_EQUAL(hip.host_unregister(memory), 0);
  CHECK_EQUAL(hip.host_unregister(memory), not_registered);
  CHECK_EQUAL(hsa.locks_at(memory), 1);
}

void interior_unregister_aborts() {
  const int signal = real::signal_of_child([] {
    const Runtime hip;
    char *memory = real::map_memory(size);
    CHECK_EQUAL(hip.host_register(memory, size, 0), 0);
    hip.host_unregister(memory + page);
  });
  CHECK_EQUAL(signal, SIGABRT);
}

constexpr real::Case cases[] = {
    {"no_device", no_device_at_all},      {"register_and_release", register_and_release},
    {"bad_arguments", bad_arguments},     {"refused_lock", refused_lock},
    {"two_devices", two_devices},         {"overlaps_are_taken", overlaps_are_taken},
    {"duplicate_leaks", duplicate_leaks}, {"interior_unregister_aborts", interior_unregister_aborts},
};

} // namespace

int main(int argc, char **argv) { return real::run_case(argc, argv, cases); }
