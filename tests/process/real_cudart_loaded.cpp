// A copy of NVIDIA's runtime that the program has loaded itself, as wheels do: under a hashed name, with local scope,
// its file deleted since. libhostpin must ask that copy and map no second one, though LD_LIBRARY_PATH offers one.
//   real_cudart_loaded FILE
#include "real_hostpin.h"
#include "real_spy.h"

#include <link.h>

namespace {

namespace fs = std::filesystem;

void *load_and_delete(const fs::path &file) {
  const fs::path folder = fs::temp_directory_path() / ("hostpin-" + std::to_string(getpid()));
  const fs::path hashed = folder / "libcudart-1a2b3c4d.so.12";
  fs::create_directory(folder);
  fs::copy_file(file, hashed);
  void *const library = real::open_library(hashed.c_str());
  fs::remove_all(folder);
  return library;
}

int copies() {
  int found = 0;
  dl_iterate_phdr(
      [](dl_phdr_info *info, std::size_t, void *count) {
        if (real::contains(info->dlpi_name, "libcudart")) ++*static_cast<int *>(count);
        return 0;
      },
      &found);
  return found;
}

} // namespace

int main(int argc, char **argv) {
  CHECK_EQUAL(argc, 2);
  load_and_delete(argv[1]);
  CHECK_EQUAL(copies(), 1);
  char *memory = real::map_memory(4096);
  CHECK_EQUAL(hp_register(memory, 4096, 0), HP_PAGEABLE);
  CHECK(spy::calls("cudaGetDeviceCount") > 0);
  CHECK_EQUAL(copies(), 1);
  CHECK(real::contains(real::backend().cuda_reason, "libcudart-1a2b3c4d.so.12"));
  CHECK(real::contains(real::backend().cuda_reason, "cudaErrorInsufficientDriver"));
}
