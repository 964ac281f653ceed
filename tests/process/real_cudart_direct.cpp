// What NVIDIA's runtime answers on a machine without a driver, by dlopen alone. libhostpin's fallback and the simulated
// runtimes rest on it.
//   real_cudart_direct FILE MAJOR
#include "real_check.h"

namespace {

constexpr int insufficient_driver = 35;

struct Runtime {
  void *library;
  int (*host_register)(void *, std::size_t,
                       unsigned) = real::find<int(void *, std::size_t, unsigned)>(library, "cudaHostRegister");
  int (*host_unregister)(void *) = real::find<int(void *)>(library, "cudaHostUnregister");
  int (*device_pointer)(void **, void *,
                        unsigned) = real::find<int(void **, void *, unsigned)>(library, "cudaHostGetDevicePointer");
  int (*device_count)(int *) = real::find<int(int *)>(library, "cudaGetDeviceCount");
  int (*last_error)() = real::find<int()>(library, "cudaGetLastError");
  int (*peek_error)() = real::find<int()>(library, "cudaPeekAtLastError");
  int (*runtime_version)(int *) = real::find<int(int *)>(library, "cudaRuntimeGetVersion");
  int (*driver_version)(int *) = real::find<int(int *)>(library, "cudaDriverGetVersion");
  const char *(*error_name)(int) = real::find<const char *(int)>(library, "cudaGetErrorName");
};

// Up to 11.x the runtime looks for the driver before it tells its own version.
void check_versions(const Runtime &cuda, int major) {
  int version = 0;
  CHECK_EQUAL(cuda.runtime_version(&version), major == 11 ? insufficient_driver : 0);
  if (major != 11) CHECK_EQUAL(version / 1000, major);
  CHECK_EQUAL(cuda.driver_version(&version), 0);
  CHECK_EQUAL(version, 0);
}

void check_refusals(const Runtime &cuda) {
  char *memory = real::map_memory(8192);
  int devices = 77;
  CHECK_EQUAL(cuda.device_count(&devices), insufficient_driver);
  CHECK(devices == 77 || devices == 0);
  CHECK_EQUAL(cuda.host_register(memory, 8192, 0), insufficient_driver);
  void *device = nullptr;
  CHECK_EQUAL(cuda.device_pointer(&device, memory, 0), insufficient_driver);
  CHECK_EQUAL(cuda.host_unregister(memory), insufficient_driver);
  CHECK(std::string_view(cuda.error_name(insufficient_driver)) == "cudaErrorInsufficientDriver");
}

// Without a driver the last error never goes away, so whoever drains until it is 0 does so for ever.
void check_last_error_stays(const Runtime &cuda) {
  for (int i = 0; i < 3; ++i) CHECK_EQUAL(cuda.last_error(), insufficient_driver);
  CHECK_EQUAL(cuda.peek_error(), insufficient_driver);
}

void check_nothing_leaks(const Runtime &cuda) {
  const long files = real::open_files(), threads = real::threads();
  char *memory = real::map_memory(8192);
  for (int i = 0; i < 1000; ++i) CHECK_EQUAL(cuda.host_register(memory, 8192, 0), insufficient_driver);
  CHECK_EQUAL(real::open_files(), files);
  CHECK_EQUAL(real::threads(), threads);
}

} // namespace

int main(int argc, char **argv) {
  CHECK_EQUAL(argc, 3);
  const Runtime cuda{real::open_library(argv[1])};
  check_versions(cuda, std::atoi(argv[2]));
  check_refusals(cuda);
  check_last_error_stays(cuda);
  check_nothing_leaks(cuda);
}
