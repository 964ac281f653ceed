// No file descriptor is left, or the standard files are closed: registering works all the same, and the library never keeps
// a descriptor.
#include "devices.h"
#include "scenario.h"

#include <sys/resource.h>

namespace {

using namespace scenario;

constexpr std::size_t size = 4 * page;

// Each descriptor that there may be is in use from now on.
void use_up_descriptors() {
  const rlimit few{64, 64};
  CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
  while (dup(STDERR_FILENO) >= 0) {
  }
  CHECK(errno == EMFILE);
}

void ignore_line(int32_t, const char *, void *) {}

// Libraries cannot be opened, nor the machine's memory be looked up.
void no_descriptor_for_the_choice() {
  pretend_devices({"/dev/nvidiactl", "/dev/kfd", "/dev/dri/renderD128"});
  setenv("HOSTPIN_BUDGET", "50%", 1);
  use_up_descriptors();
  hp_set_log_callback(ignore_line, nullptr);
  CHECK_EQUAL(hp_register(map_memory(page), page, 0), HP_PAGEABLE);
  const hp_backend_info info = backend();
  for (const char *reason : {info.cuda_reason, info.hip_reason, info.level_zero_reason}) CHECK(*reason != 0);
}

void no_descriptor_with_a_runtime() {
  open_library(cudart12.c_str());
  char *memory = map_memory(2 * size);
  CHECK(hps_script("maps=0,fail=register:2:1") == 0);
  use_up_descriptors();
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(hp_register(memory + size, size, HP_REGISTER_REQUIRED), HP_E_REFUSED);  // with a look at the mapping
  CHECK_EQUAL(hp_last_native_error(), 1);
  CHECK_EQUAL(hp_register(memory + size, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(hp_unregister_all(UINT64_MAX), HP_OK);
  CHECK_EQUAL(hps_live_registrations(), 0);
}

// Every status there is, and not one descriptor more.
void everything() {
  char *memory = map_memory(3 * size);
  CHECK(hps_script("fail=register:2:1,fail=register:4:2") == 0);
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(hp_register(memory + size, size, 0), HP_PAGEABLE);
  CHECK_EQUAL(hp_register(memory + 2 * size, size, 0), HP_OK);
  CHECK_EQUAL(hp_register(memory + size, size, HP_REGISTER_REQUIRED), HP_E_REFUSED);
  CHECK_EQUAL(backend().backend, HP_BACKEND_CUDA);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  CHECK_EQUAL(hp_unregister_all(UINT64_MAX), HP_OK);
  for (int i = 0; i < 10000 && threads() > 1; ++i) usleep(1000);  // the one that released
}

void no_descriptor_is_kept() {
  open_library(cudart12.c_str());
  hp_set_log_callback(ignore_line, nullptr);
  setenv("HOSTPIN_BUDGET", "50%", 1);
  const long files = open_files();
  everything();
  CHECK_EQUAL(open_files(), files);
}

// Failures can be told by the status only.
void standard_files_are_closed() {
  open_library(cudart12.c_str());
  for (int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(file);
  everything();
  for (int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) CHECK(fcntl(file, F_GETFD) == -1);
}

void standard_files_are_closed_and_there_is_no_backend() {
  setenv("HOSTPIN_BUDGET", "50%", 1);
  for (int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(file);
  CHECK_EQUAL(hp_register(map_memory(page), page, 0), HP_PAGEABLE);
  for (int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) CHECK(fcntl(file, F_GETFD) == -1);
}

} // namespace

int main(int argc, char **argv) {
  return run_cases(
      argc, argv,
      {{"no_descriptor_for_the_choice", no_descriptor_for_the_choice},
       {"no_descriptor_with_a_runtime", no_descriptor_with_a_runtime},
       {"no_descriptor_is_kept", no_descriptor_is_kept},
       {"standard_files_are_closed", standard_files_are_closed},
       {"standard_files_are_closed_and_there_is_no_backend", standard_files_are_closed_and_there_is_no_backend}});
}
