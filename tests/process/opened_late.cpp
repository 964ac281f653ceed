// libhostpin opened with dlopen by a program that is not linked with it, as foreign function interfaces do: in any thread, as
// often as they like.
#include "scenario.h"

#include <dlfcn.h>
#include <malloc.h>

#include <fstream>
#include <thread>

namespace {

using namespace scenario;

struct Hostpin {
  void *library = open_library(HOSTPIN_LIBRARY);
  decltype(&hp_register) do_register = find<decltype(hp_register)>(library, "hp_register");
  decltype(&hp_unregister) unregister = find<decltype(hp_unregister)>(library, "hp_unregister");
  decltype(&hp_query) query = find<decltype(hp_query)>(library, "hp_query");
  decltype(&hp_last_error) last_error = find<decltype(hp_last_error)>(library, "hp_last_error");

  void close() { CHECK_EQUAL(dlclose(library), 0); }
};

long mappings() {
  std::ifstream maps("/proc/self/maps");
  long lines = 0;
  for (std::string line; std::getline(maps, line);) ++lines;
  return lines;
}

bool is_mapped() {
  void *library = dlopen(HOSTPIN_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
  if (library != nullptr) dlclose(library);
  return library != nullptr;
}

void opened_and_closed_a_thousand_times() {
  use(cudart12);
  CHECK(!is_mapped());
  char *memory = map_memory(page);
  Hostpin first;
  CHECK_EQUAL(first.do_register(memory, page, HP_REGISTER_REQUIRED), HP_OK);
  first.close();
  CHECK(is_mapped());
  mappings();
  const long mapped = mappings(), files = open_files(), tasks = threads();
  const std::size_t heap = mallinfo2().uordblks;
  for (int i = 0; i < 1000; ++i) {
    Hostpin again;
    CHECK(again.do_register == first.do_register);
    CHECK_EQUAL(again.query(memory, page, nullptr), HP_OK);
    again.close();
  }
  CHECK_EQUAL(mallinfo2().uordblks, heap);
  CHECK_EQUAL(mappings(), mapped);
  CHECK_EQUAL(open_files(), files);
  CHECK_EQUAL(threads(), tasks);
  CHECK_EQUAL(hps_calls("register"), 1);
  CHECK_EQUAL(first.unregister(memory), HP_OK);  // it is still there
}

void loading_calls_nobody() {
  open_library(cudart12.c_str());
  const long files = open_files(), tasks = threads();
  Hostpin hostpin;
  hostpin.close();
  CHECK_EQUAL(hps_calls("*"), 0);
  CHECK_EQUAL(open_files(), files);
  CHECK_EQUAL(threads(), tasks);
}

void closed_with_live_registrations() {
  std::atexit([] { CHECK_EQUAL(hps_calls("unregister"), 0); });
  use(cudart12);
  Hostpin hostpin;
  CHECK_EQUAL(hostpin.do_register(map_memory(page), page, HP_REGISTER_REQUIRED), HP_OK);
  hostpin.close();
  CHECK_EQUAL(hps_calls("unregister"), 0);
  CHECK_EQUAL(hps_live_registrations(), 1);
}

void opened_in_a_thread_that_ends() {
  use(cudart12);
  char *memory = map_memory(page);
  std::thread([memory] {
    Hostpin hostpin;
    CHECK_EQUAL(hostpin.do_register(memory, page, HP_REGISTER_REQUIRED), HP_OK);
    CHECK_EQUAL(hostpin.unregister(memory + 1), HP_E_NOT_FOUND);
    hostpin.close();
  }).join();
  Hostpin hostpin;
  CHECK(std::string_view(hostpin.last_error()).empty());
  CHECK_EQUAL(hostpin.unregister(memory), HP_OK);
}

void fail_in_a_thread(const Hostpin &hostpin) {
  std::thread([&hostpin] {
    CHECK(std::string_view(hostpin.last_error()).empty());
    CHECK_EQUAL(hostpin.query(nullptr, 1, nullptr), HP_E_INVALID);
    CHECK(contains(hostpin.last_error(), "ptr is NULL"));
  }).join();
}

// What a thread's last error takes goes with the thread.
void last_errors_end_with_their_threads() {
  Hostpin hostpin;
  mallopt(M_ARENA_MAX, 1);  // so that every thread's memory is counted
  for (int i = 0; i < 100; ++i) fail_in_a_thread(hostpin);
  mallinfo2();
  const std::size_t heap = mallinfo2().uordblks;
  for (int i = 0; i < 2000; ++i) fail_in_a_thread(hostpin);
  CHECK_EQUAL(mallinfo2().uordblks, heap);
}

} // namespace

int main(int argc, char **argv) {
  return run_cases(argc, argv,
                   {{"opened_and_closed_a_thousand_times", opened_and_closed_a_thousand_times},
                    {"loading_calls_nobody", loading_calls_nobody},
                    {"closed_with_live_registrations", closed_with_live_registrations},
                    {"opened_in_a_thread_that_ends", opened_in_a_thread_that_ends},
                    {"last_errors_end_with_their_threads", last_errors_end_with_their_threads}});
}
