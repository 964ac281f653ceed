// What the real Level Zero loader does, by dlopen alone: with no driver, with Intel's driver on its simulated device,
// with our own driver, and with both. The table of imports is asked of Intel's and of our driver, so that ours cannot
// drift from the real one.
#include "hostpin_ze.h"
#include "real_level_zero.h"

#include <csignal>

namespace {

constexpr std::size_t page = 4096, size = std::size_t{1} << 20;

void no_driver() {
  const real::Loader ze;
  for (int i = 0; i < 2; ++i) CHECK_EQUAL(ze.init(0), ZE_RESULT_ERROR_UNINITIALIZED);
}

void one_gpu() {
  const real::Loader ze;
  CHECK_EQUAL(ze.init(0), ZE_RESULT_SUCCESS);
  CHECK_EQUAL(ze.drivers().size(), 1);
  uint32_t devices = 0;
  CHECK_EQUAL(ze.device_get(ze.drivers()[0], &devices, nullptr), ZE_RESULT_SUCCESS);
  CHECK_EQUAL(devices, 1);
}

void import_and_release(const real::Imports &driver, char *memory) {
  CHECK_EQUAL(driver.add(memory + 13, 5000), ZE_RESULT_SUCCESS);
  CHECK(driver.covers(memory + 13));
  CHECK(driver.covers(memory + 13 + 4999));
  CHECK(!driver.covers(memory + 13 + 5000));
  CHECK_EQUAL(driver.remove(memory + 13), ZE_RESULT_SUCCESS);
  CHECK_EQUAL(driver.remove(memory + 13), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  CHECK_EQUAL(driver.add(nullptr, size), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  CHECK_EQUAL(driver.add(memory, 0), ZE_RESULT_ERROR_INVALID_ARGUMENT);
}

void overlaps(const real::Imports &driver, char *memory) {
  CHECK_EQUAL(driver.add(memory, size), ZE_RESULT_SUCCESS);
  CHECK_EQUAL(driver.add(memory + 2 * size, size), ZE_RESULT_SUCCESS);
  CHECK_EQUAL(driver.add(memory + size / 2, 2 * size), ZE_RESULT_ERROR_OVERLAPPING_REGIONS);
  CHECK_EQUAL(driver.add(memory, size + page), ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
  CHECK_EQUAL(driver.add(memory + size, size + page), ZE_RESULT_ERROR_INVALID_SIZE);
  CHECK_EQUAL(driver.add(memory + size, size), ZE_RESULT_SUCCESS);
  for (int i = 0; i < 3; ++i)
    CHECK_EQUAL(driver.remove(memory + static_cast<std::size_t>(i) * size), ZE_RESULT_SUCCESS);
}

// The reasons why libhostpin keeps a table of its own.
void nothing_is_counted(const real::Imports &driver, char *memory) {
  CHECK_EQUAL(driver.add(memory, size), ZE_RESULT_SUCCESS);
  CHECK_EQUAL(driver.add(memory, size), ZE_RESULT_SUCCESS);
  CHECK_EQUAL(driver.add(memory + page, page), ZE_RESULT_SUCCESS);
  CHECK_EQUAL(driver.remove(memory + 100), ZE_RESULT_SUCCESS);
  CHECK(!driver.covers(memory));
}

void containment_is_not_seen(const real::Imports &driver, char *memory) {
  CHECK_EQUAL(driver.add(memory + size, page), ZE_RESULT_SUCCESS);
  CHECK_EQUAL(driver.add(memory, 3 * size), ZE_RESULT_SUCCESS);
  CHECK(driver.covers(memory + size - 1));
  CHECK(!driver.covers(memory + size + page));
  CHECK_EQUAL(driver.remove(memory + size), ZE_RESULT_SUCCESS);
  CHECK_EQUAL(driver.remove(memory), ZE_RESULT_SUCCESS);
}

void import_table() {
  const real::Loader ze;
  CHECK_EQUAL(ze.init(0), ZE_RESULT_SUCCESS);
  const real::Imports driver(ze, ze.drivers().at(0));
  char *memory = real::map_memory(4 * size);
  import_and_release(driver, memory);
  overlaps(driver, memory);
  nothing_is_counted(driver, memory);
  containment_is_not_seen(driver, memory);
}

// With two drivers the loader wraps their handles, and an import with the wrapper as its driver crashes.
void two_drivers() {
  const real::Loader ze;
  CHECK_EQUAL(ze.init(0), ZE_RESULT_SUCCESS);
  const auto drivers = ze.drivers();
  CHECK_EQUAL(drivers.size(), 2);
  char *memory = real::map_memory(size);
  for (ze_driver_handle_t wrapped : drivers) {
    const real::Imports driver(ze, wrapped);
    CHECK(driver.driver != wrapped);
    CHECK_EQUAL(driver.add(memory, size), ZE_RESULT_SUCCESS);
    CHECK_EQUAL(driver.remove(memory), ZE_RESULT_SUCCESS);
    const auto import_with_wrapper = [&] {
      std::signal(SIGSEGV, SIG_DFL);  // from a sanitizer
      driver.import(wrapped, memory, size);
    };
    CHECK(real::signal_of_child(import_with_wrapper) != 0);
  }
}

// The child loads the driver itself, because a fork after that is one of the abuses.
int signal_of_abuse(void (*abuse)(const real::Imports &driver, char *memory)) {
  return real::signal_of_child([abuse] {
    const real::Loader ze;
    CHECK_EQUAL(ze.init(0), ZE_RESULT_SUCCESS);
    const real::Imports driver(ze, ze.drivers().at(0));
    char *memory = real::map_memory(4 * size);
    CHECK_EQUAL(driver.add(memory + size, size), ZE_RESULT_SUCCESS);
    abuse(driver, memory);
  });
}

void strict_driver_ends_the_program() {
  CHECK_EQUAL(signal_of_abuse([](const real::Imports &driver, char *memory) { driver.add(memory + size, size); }),
              SIGABRT);
  CHECK_EQUAL(signal_of_abuse([](const real::Imports &driver, char *memory) { driver.add(memory, 3 * size); }),
              SIGABRT);
  CHECK_EQUAL(signal_of_abuse([](const real::Imports &driver, char *memory) { driver.add(memory, SIZE_MAX); }),
              SIGABRT);
  CHECK_EQUAL(signal_of_abuse([](const real::Imports &driver, char *memory) { driver.remove(memory + size + page); }),
              SIGABRT);
  CHECK_EQUAL(signal_of_abuse([](const real::Imports &driver, char *memory) { driver.remove(memory); }), SIGABRT);
  CHECK_EQUAL(signal_of_abuse([](const real::Imports &driver, char *memory) {
                if (fork() == 0) driver.add(memory, page);
                int status = 0;
                wait(&status);
                if (WIFSIGNALED(status)) std::abort();
              }),
              SIGABRT);
  CHECK_EQUAL(signal_of_abuse([](const real::Imports &driver, char *memory) { driver.remove(memory + size); }), 0);
}

void lookup_of_nothing() {
  const real::Loader ze;
  CHECK_EQUAL(ze.init(0), ZE_RESULT_SUCCESS);
  void *address = nullptr;
  CHECK_EQUAL(ze.function_address(ze.drivers().at(0), "zexDriverImportExternalPointer", &address), ZE_RESULT_SUCCESS);
  CHECK(address == nullptr);
}

void lookup_refused() {
  const real::Loader ze;
  CHECK_EQUAL(ze.init(0), ZE_RESULT_SUCCESS);
  int untouched = 0;
  void *address = &untouched;
  CHECK(ze.function_address(ze.drivers().at(0), "zexDriverImportExternalPointeR", &address) != ZE_RESULT_SUCCESS);
  CHECK(address == &untouched);
}

void failing_init() {
  const real::Loader ze;
  CHECK_EQUAL(ze.init(0), ZE_RESULT_ERROR_DEVICE_LOST);
  CHECK_EQUAL(ze.init(0), ZE_RESULT_ERROR_DEVICE_LOST);
}

constexpr real::Case cases[] = {
    {"no_driver", no_driver},
    {"one_gpu", one_gpu},
    {"import_table", import_table},
    {"two_drivers", two_drivers},
    {"strict_driver_ends_the_program", strict_driver_ends_the_program},
    {"lookup_of_nothing", lookup_of_nothing},
    {"lookup_refused", lookup_refused},
    {"failing_init", failing_init},
};

} // namespace

int main(int argc, char **argv) { return real::run_case(argc, argv, cases); }
