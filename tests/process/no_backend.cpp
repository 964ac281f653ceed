// A machine without a device: registering is a no-op that says so once, and costs the process nothing, however often it is
// called.
#include "devices.h"
#include "scenario.h"

#include <malloc.h>

#include <cstdint>
#include <fstream>
#include <thread>

namespace {

using namespace scenario;

// Of any use as an address only: nobody touches the memory.
char *address(std::size_t i) { return reinterpret_cast<char *>((std::size_t{1} << 40) + i * page); }

long resident_pages() {
  long size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident;
}

std::string mapped_files() {
  std::ifstream maps("/proc/self/maps");
  return {std::istreambuf_iterator<char>(maps), {}};
}

struct Footprint {
  long files = open_files(), tasks = threads(), pages = resident_pages();
  std::size_t heap = mallinfo2().uordblks;  // last: what the above freed may count as used
};

void check_same(const Footprint &before, const Footprint &after) {
  CHECK_EQUAL(after.files, before.files);
  CHECK_EQUAL(after.tasks, before.tasks);
  CHECK_EQUAL(after.heap, before.heap);
  CHECK(after.pages - before.pages < 64);
}

void register_all(std::size_t first, std::size_t end) {
  for (std::size_t i = first; i < end; ++i) CHECK_EQUAL(hp_register(address(i), page, 0), HP_PAGEABLE);
}

void thousand_calls_for_one_buffer() {
  const CapturedStderr captured;
  for (int i = 0; i < 10; ++i) register_all(0, 1);
  { const Footprint warm_up; }
  const Footprint before;
  for (int i = 0; i < 990; ++i) register_all(0, 1);
  check_same(before, {});
  CHECK_EQUAL(captured.lines(), 1);
  CHECK(contains(captured.text(), "hostpin: warning: no GPU runtime is usable"));
}

void thousand_calls_for_as_many_buffers() {
  const CapturedStderr captured;
  register_all(0, 1000);
  { const Footprint warm_up; }
  const Footprint before;
  for (int i = 0; i < 20; ++i) register_all(0, 1000);
  check_same(before, {});
  CHECK_EQUAL(captured.lines(), 1);
  for (std::size_t i = 0; i < 1000; ++i) CHECK_EQUAL(hp_query(address(i), page, nullptr), HP_PAGEABLE);
}

// Programs may forget what is pageable, so the library must, too.
void records_are_forgotten() {
  const CapturedStderr captured;
  register_all(0, 66000);
  { const Footprint warm_up; }
  const Footprint before;
  register_all(66000, 300000);
  check_same(before, {});
  CHECK_EQUAL(stats().pageable_bytes, 65536 * page);
  CHECK_EQUAL(hp_unregister(address(0)), HP_E_NOT_FOUND);
  CHECK_EQUAL(hp_unregister(address(299999)), HP_OK);
}

void unregistering_gives_back() {
  const CapturedStderr captured;
  register_all(0, 1000);
  for (std::size_t i = 0; i < 1000; ++i) CHECK_EQUAL(hp_unregister(address(i)), HP_OK);
  { const Footprint warm_up; }
  const Footprint before;
  register_all(0, 1000);
  for (std::size_t i = 0; i < 1000; ++i) CHECK_EQUAL(hp_unregister(address(i)), HP_OK);
  check_same(before, {});
  CHECK_EQUAL(stats().pageable_bytes, 0);
}

void one_line_from_eight_threads() {
  const CapturedStderr captured;
  std::vector<std::thread> workers;
  for (std::size_t t = 0; t < 8; ++t) workers.emplace_back([t] { register_all(t * 125, t * 125 + 125); });
  for (std::thread &worker : workers) worker.join();
  CHECK_EQUAL(captured.lines(), 1);
}

// The loader would find all of them.
const std::string every_runtime = sim("cudart11") + ":" + sim("cudart12") + ":" + sim("cudart13") + ":" + sim("cuda") +
                                  ":" + sim("amdhip5") + ":" + sim("amdhip6") + ":" + sim("amdhip7");

void no_library_is_loaded() {
  const CapturedStderr captured;
  const std::string before = mapped_files();
  CHECK_EQUAL(hp_register(address(0), page, 0), HP_PAGEABLE);
  CHECK(opened_by_hostpin().empty());
  for (const char *library : {"libcudart", "libcuda.so", "libamdhip64", "libze_loader"})
    CHECK(!contains(before, library) && !contains(mapped_files(), library));
  const hp_backend_info info = backend();
  CHECK_EQUAL(info.backend, HP_BACKEND_NONE);
  CHECK(std::string_view(info.runtime_file).empty());
  CHECK(contains(info.cuda_reason, "/dev/nvidiactl"));
  CHECK(contains(info.hip_reason, "/dev/kfd"));
  CHECK(contains(info.level_zero_reason, "/dev/dri/renderD"));
}

// A device node is what makes the difference.
template <const char *node, int expected>
void library_is_loaded_for_a_node() {
  pretend_devices({node});
  CHECK_EQUAL(hp_register(map_memory(page), page, 0), HP_OK);
  CHECK_EQUAL(backend().backend, expected);
}

constexpr char nvidiactl[] = "/dev/nvidiactl", kfd[] = "/dev/kfd";

} // namespace

int main(int argc, char **argv) {
  return run_cases(argc, argv,
                   {{"thousand_calls_for_one_buffer", thousand_calls_for_one_buffer},
                    {"thousand_calls_for_as_many_buffers", thousand_calls_for_as_many_buffers},
                    {"records_are_forgotten", records_are_forgotten},
                    {"unregistering_gives_back", unregistering_gives_back},
                    {"one_line_from_eight_threads", one_line_from_eight_threads},
                    {"no_library_is_loaded", no_library_is_loaded, every_runtime},
                    {"library_is_loaded_for_an_nvidia_node", library_is_loaded_for_a_node<nvidiactl, HP_BACKEND_CUDA>,
                     every_runtime},
                    {"library_is_loaded_for_an_amd_node", library_is_loaded_for_a_node<kfd, HP_BACKEND_HIP>,
                     every_runtime}});
}
