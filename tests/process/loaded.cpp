// Which runtime is used: one that the process has loaded comes before all that could be opened, whatever its file is called
// and wherever it has gone.
#include "devices.h"
#include "scenario.h"

#include <dlfcn.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace {

using namespace scenario;
namespace fs = std::filesystem;

const std::string openable = sim("cudart11") + ":" + sim("cudart12") + ":" + sim("cudart13") + ":" + sim("cuda") + ":" +
                             sim("amdhip7");
constexpr const char *nvidia = "/dev/nvidiactl", *amd = "/dev/kfd";

char *memory() {
  static char *const mapped = map_memory(page);
  return mapped;
}

// The files of runtimes that are mapped; a deleted one has " (deleted)" behind its name.
std::set<std::string> mapped_runtimes() {
  std::set<std::string> files;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    for (const char *library : {"/libcudart", "/libcuda.so", "/libamdhip64"})
      if (contains(line, library)) files.insert(line.substr(line.find('/')));
  return files;
}

void expect_pinned_by(const std::string &file) {
  CHECK_EQUAL(hp_register(memory(), page, HP_REGISTER_REQUIRED), HP_OK);
  CHECK(hps_pinned(memory(), page) == HPS_ALL);
  CHECK(backend().runtime_file == file);
  CHECK_EQUAL(hp_unregister(memory()), HP_OK);
}

// With everything there to be opened.
void expect_only_use_of(const std::string &file) {
  pretend_devices({nvidia, amd});
  const auto before = mapped_runtimes();
  CHECK_EQUAL(before.size(), 1);
  expect_pinned_by(file);
  CHECK(mapped_runtimes() == before);
  CHECK(opened_by_hostpin().empty());
}

std::string expect_none() {
  const CapturedStderr captured;
  CHECK_EQUAL(hp_register(memory(), page, 0), HP_PAGEABLE);
  CHECK_EQUAL(backend().backend, HP_BACKEND_NONE);
  return backend().cuda_reason;
}

void local_copy() {
  open_library(cudart12.c_str());
  CHECK(dlsym(RTLD_DEFAULT, "cudaHostRegister") == nullptr);
  expect_only_use_of(cudart12);
}

void hashed_copy() {
  const std::string hashed = sim("cudart12-hashed/libcudart-1a2b3c4d.so.12");
  open_library(hashed.c_str());
  expect_only_use_of(hashed);
}

void copy_renamed_as_auditwheel_does() {
  char folder[] = "/tmp/hostpin-loaded-XXXXXX";
  CHECK(mkdtemp(folder) != nullptr);
  const std::string file = std::string(folder) + "/libcudart.99ffaa00.so.12";
  fs::copy_file(cudart12, file);
  open_library(file.c_str());
  fs::remove_all(folder);
  expect_only_use_of(file);
}

void deleted_copy() {
  char folder[] = "/tmp/hostpin-loaded-XXXXXX";
  CHECK(mkdtemp(folder) != nullptr);
  const std::string file = std::string(folder) + "/libcudart.so.12";
  fs::copy_file(cudart12, file);
  open_library(file.c_str());
  fs::remove_all(folder);
  CHECK(contains(*mapped_runtimes().begin(), "(deleted)"));
  expect_only_use_of(file);
}

// It aborts when it is called.
void lookalike() {
  open_library(sim("cudart-lookalike/libcudart_stub.so").c_str());
  CHECK(!contains(expect_none(), "libcudart_stub"));
  CHECK_EQUAL(hps_calls("*"), 0);
}

void half_missing() {
  open_library(sim("cudart12-half/libcudart.so.12").c_str());
  CHECK(contains(expect_none(), "cudart12-half/libcudart.so.12 has no cudaHostUnregister"));
  CHECK_EQUAL(hps_calls("*"), 0);
  open_library(cudart13.c_str());
  expect_pinned_by(cudart13);
}

void stubs() {
  open_library(sim("cudart12-stub/libcudart.so.12").c_str());
  open_library(sim("cuda-stub/libcuda.so.1").c_str());
  const std::string reason = expect_none();
  CHECK(contains(reason, "cudaGetDeviceCount returned 34 cudaErrorStubLibrary"));
  CHECK(contains(reason, "cuInit returned 34"));
  CHECK(contains(hp_last_error(), "34"));
}

void stub_before_another() {
  open_library(sim("cudart12-stub/libcudart.so.12").c_str());
  open_library(cudart13.c_str());
  expect_pinned_by(cudart13);
}

void first_loaded_of_two() {
  open_library(cudart12.c_str());
  open_library(cudart13.c_str());
  expect_pinned_by(cudart12);
  CHECK_EQUAL(hps_calls("cudaGetDeviceCount"), 1);
}

void first_loaded_of_two_the_other_way() {
  open_library(cudart13.c_str());
  open_library(cudart12.c_str());
  expect_pinned_by(cudart13);
}

// The driver is too old for 13, which says so.
void first_of_two_that_works() {
  CHECK(hps_script("driver_version=12040") == 0);
  open_library(cudart13.c_str());
  open_library(cudart12.c_str());
  expect_pinned_by(cudart12);
}

// A static runtime cannot be seen, but its driver can.
void driver_without_runtime() {
  open_library(cuda.c_str());
  pretend_devices({nvidia, amd});
  const auto before = mapped_runtimes();
  expect_pinned_by(cuda);
  CHECK_EQUAL(hps_calls("cuMemHostRegister_v2"), 1);
  CHECK_EQUAL(hps_calls("cuMemHostUnregister"), 1);
  CHECK(mapped_runtimes() == before);
}

void runtime_before_driver() {
  open_library(cuda.c_str());
  open_library(cudart12.c_str());
  expect_pinned_by(cudart12);
  CHECK_EQUAL(hps_calls("cudaHostRegister"), 1);
  CHECK_EQUAL(hps_calls("cuMemHostRegister_v2"), 0);
}

void loaded_hip_before_openable_cuda() {
  open_library(hip7.c_str());
  expect_only_use_of(hip7);
  CHECK_EQUAL(backend().backend, HP_BACKEND_HIP);
  CHECK(!std::string_view(backend().cuda_reason).empty());
}

void loaded_cuda_before_loaded_hip() {
  open_library(hip7.c_str());
  open_library(cudart12.c_str());
  expect_pinned_by(cudart12);
  CHECK_EQUAL(backend().backend, HP_BACKEND_CUDA);
}

void named_file_before_loaded_copy() {
  open_library(cudart12.c_str());
  use(cudart11);
  expect_pinned_by(cudart11);
}

void named_file_that_is_not_there() {
  open_library(cudart12.c_str());
  use("/nowhere/libcudart.so.12");
  expect_pinned_by(cudart12);
}

// A loaded copy that works is used on a machine where no device node is seen: containers hide them.
void loaded_copy_needs_no_node() {
  open_library(cudart12.c_str());
  expect_pinned_by(cudart12);
}

void none_is_looked_at_again() {
  expect_none();
  open_library(cudart12.c_str());
  expect_pinned_by(cudart12);
}

// A runtime is asked once, and once more only if it is another one.
void none_is_not_asked_again() {
  CHECK(hps_script("devices=0") == 0);
  open_library(cudart12.c_str());
  CHECK(contains(expect_none(), "cudaGetDeviceCount returned 100"));
  const uint64_t calls = hps_calls("*");
  for (int i = 0; i < 1000; ++i) CHECK_EQUAL(hp_register(memory(), page, 0), HP_PAGEABLE);
  CHECK_EQUAL(hps_calls("*"), calls);
  open_library(sim("cudart-lookalike/libcudart_stub.so").c_str());
  for (int i = 0; i < 1000; ++i) CHECK_EQUAL(hp_register(memory(), page, 0), HP_PAGEABLE);
  CHECK_EQUAL(hps_calls("*"), calls);
  open_library(cudart13.c_str());
  CHECK_EQUAL(hp_register(memory(), page, 0), HP_PAGEABLE);
  CHECK_EQUAL(hps_calls("cudaGetDeviceCount"), 2);
}

// Nothing that is opened by name may be a development file or a stub.
void only_versioned_names_are_opened() {
  CHECK(hps_script("devices=0") == 0);
  pretend_devices({nvidia, amd, "/dev/dri/renderD128"});
  expect_none();
  const std::vector<std::string> expected = {"libcudart.so.13",  "libcudart.so.12",  "libcudart.so.11.0",
                                             "libcuda.so.1",     "libamdhip64.so.7", "libamdhip64.so.6",
                                             "libamdhip64.so.5", "libze_loader.so.1"};
  CHECK(opened_by_hostpin() == expected);
}

void newest_is_opened_first() {
  pretend_devices({nvidia});
  expect_pinned_by(cudart13);
}

void newest_that_works_is_opened() {
  CHECK(hps_script("driver_version=12040") == 0);
  pretend_devices({nvidia});
  expect_pinned_by(cudart12);
}

void driver_is_opened_where_no_runtime_is() {
  pretend_devices({nvidia});
  expect_pinned_by(cuda);
}

} // namespace

int main(int argc, char **argv) {
  return run_cases(argc, argv,
                   {{"local_copy", local_copy, openable},
                    {"hashed_copy", hashed_copy, openable},
                    {"copy_renamed_as_auditwheel_does", copy_renamed_as_auditwheel_does, openable},
                    {"deleted_copy", deleted_copy, openable},
                    {"lookalike", lookalike},
                    {"half_missing", half_missing},
                    {"stubs", stubs},
                    {"stub_before_another", stub_before_another},
                    {"first_loaded_of_two", first_loaded_of_two},
                    {"first_loaded_of_two_the_other_way", first_loaded_of_two_the_other_way},
                    {"first_of_two_that_works", first_of_two_that_works},
                    {"driver_without_runtime", driver_without_runtime, openable},
                    {"runtime_before_driver", runtime_before_driver},
                    {"loaded_hip_before_openable_cuda", loaded_hip_before_openable_cuda, openable},
                    {"loaded_cuda_before_loaded_hip", loaded_cuda_before_loaded_hip},
                    {"named_file_before_loaded_copy", named_file_before_loaded_copy},
                    {"named_file_that_is_not_there", named_file_that_is_not_there},
                    {"loaded_copy_needs_no_node", loaded_copy_needs_no_node},
                    {"none_is_looked_at_again", none_is_looked_at_again},
                    {"none_is_not_asked_again", none_is_not_asked_again},
                    {"only_versioned_names_are_opened", only_versioned_names_are_opened, openable},
                    {"newest_is_opened_first", newest_is_opened_first, openable},
                    {"newest_that_works_is_opened", newest_that_works_is_opened, openable},
                    {"driver_is_opened_where_no_runtime_is", driver_is_opened_where_no_runtime_is, sim("cuda")}});
}
