// libhostpin over the real Level Zero loader, with Intel's driver on its simulated device, with our own driver that
// fails where it is told to, and with both. ZE_ENABLE_ALT_DRIVERS says which.
#include "hostpin_ze.h"
#include "real_hostpin.h"
#include "real_level_zero.h"
#include "real_spy.h"

#include <algorithm>

namespace {

constexpr std::size_t page = 4096, size = std::size_t{1} << 20;

// Every driver's own table of imports, read past libhostpin.
class Drivers {
 public:
  Drivers() {
    CHECK_EQUAL(loader_.init(0), ZE_RESULT_SUCCESS);
    for (ze_driver_handle_t driver : loader_.drivers()) imports_.emplace_back(loader_, driver);
  }

  // How many of the drivers have the byte imported.
  long covering(const char *address) const {
    return std::ranges::count_if(
        imports_, [address](const real::Imports &driver) { return driver.covers(const_cast<char *>(address)); });
  }

  const std::vector<real::Imports> &all() const { return imports_; }

 private:
  real::Loader loader_;
  std::vector<real::Imports> imports_;
};

// Our own driver: the entry of ZE_ENABLE_ALT_DRIVERS that is a path.
struct OwnDriver {
  void *library = open();
  decltype(&hostpin_ze_script) script = real::find<decltype(hostpin_ze_script)>(library, "hostpin_ze_script");
  decltype(&hostpin_ze_count) count = real::find<decltype(hostpin_ze_count)>(library, "hostpin_ze_count");
  decltype(&hostpin_ze_covers) covers = real::find<decltype(hostpin_ze_covers)>(library, "hostpin_ze_covers");

 private:
  static void *open() {
    std::string list = std::getenv("ZE_ENABLE_ALT_DRIVERS");
    list.erase(0, list.find('/'));
    return real::open_library(list.substr(0, list.find(',')).c_str());
  }
};

bool reason_names(std::string_view part) { return real::contains(real::backend().level_zero_reason, part); }

void expect_pageable(std::string_view reason) {
  char *memory = real::map_memory(size);
  const real::CapturedStderr captured;
  for (int i = 0; i < 100; ++i) CHECK_EQUAL(hp_register(memory, size, 0), HP_PAGEABLE);
  CHECK_EQUAL(captured.lines(), 1);
  CHECK_EQUAL(real::backend().backend, HP_BACKEND_NONE);
  if (!reason_names(reason))
    real::fail(__FILE__, __LINE__, reason.data(), std::string("is not in: ") + real::backend().level_zero_reason);
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_E_UNAVAILABLE);
}

// One driver, Intel's or ours.

void register_and_release() {
  char *memory = real::map_memory(3 * size), *inside = memory + size;
  const hp_backend_info info = real::backend();
  CHECK_EQUAL(info.backend, HP_BACKEND_LEVEL_ZERO);
  CHECK(std::string_view(info.name) == "level_zero");
  CHECK(real::contains(info.runtime_file, "libze_loader.so.1"));
  CHECK_EQUAL(info.device_count, 1);
  CHECK(std::string_view(info.level_zero_reason).empty());
  CHECK_EQUAL(hp_register(inside, size, HP_REGISTER_REQUIRED), HP_OK);
  const Drivers drivers;
  CHECK_EQUAL(drivers.covering(inside), 1);
  CHECK_EQUAL(drivers.covering(inside + size - 1), 1);
  CHECK_EQUAL(drivers.covering(inside - 1), 0);
  CHECK_EQUAL(drivers.covering(inside + size), 0);
  CHECK_EQUAL(real::region(inside, size).one_segment, 1);
  CHECK_EQUAL(real::region(inside, size).host_address, 0);
  CHECK_EQUAL(hp_unregister(inside), HP_OK);
  CHECK_EQUAL(drivers.covering(inside), 0);
  CHECK_EQUAL(hp_query(inside, 1, nullptr), HP_PAGEABLE);
}

// An import serves copies; kernels must not be handed its address.
void no_device_pointer() {
  char *memory = real::map_memory(size);
  void *device = memory;
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(hp_device_pointer(memory, &device), HP_E_UNSUPPORTED);
  CHECK(device == memory);
  CHECK_EQUAL(real::backend().capabilities & (HP_CAP_DEVICE_POINTER | HP_CAP_HOST_ADDRESS), 0);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
}

void same_range_is_counted() {
  char *memory = real::map_memory(size);
  for (int i = 0; i < 3; ++i) CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(spy::calls("zeInit"), 1);
  const Drivers drivers;
  for (int i = 0; i < 3; ++i) {
    CHECK_EQUAL(drivers.covering(memory), 1);
    CHECK_EQUAL(hp_unregister(memory), HP_OK);
  }
  CHECK_EQUAL(drivers.covering(memory), 0);
}

void random_ranges() {
  CHECK_EQUAL(real::backend().backend, HP_BACKEND_LEVEL_ZERO);
  const Drivers drivers;
  real::RandomRanges([&](const char *address) { return drivers.covering(address); },
                     static_cast<long>(drivers.all().size()))
      .run(3000);
}

void forked_child_reaches_nobody() {
  char *memory = real::map_memory(2 * size);
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  const long calls = spy::calls();
  CHECK_EQUAL(real::signal_of_child([&] {
                CHECK_EQUAL(hp_register(memory + size, size, 0), HP_E_FORKED);
                CHECK_EQUAL(hp_unregister(memory), HP_E_FORKED);
                CHECK_EQUAL(spy::calls(), calls);
              }),
              0);
  const Drivers drivers;
  CHECK_EQUAL(drivers.covering(memory), 1);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  CHECK_EQUAL(drivers.covering(memory), 0);
}

void exit_with_live_registrations() {
  char *memory = real::map_memory(4 * size);
  for (std::size_t i = 0; i < 4; ++i) CHECK_EQUAL(hp_register(memory + i * size, size, HP_REGISTER_REQUIRED), HP_OK);
}

// Our driver, refusing.

void no_import_function() { expect_pageable("zexDriverImportExternalPointer"); }
void no_release_function() { expect_pageable("zexDriverReleaseImportedPointer"); }
void failing_init() { expect_pageable("0x70000001"); }
void failing_driver_list() { expect_pageable("zeDriverGet"); }
void no_device() { expect_pageable("no GPU"); }

void refused_import() {
  const OwnDriver driver;
  char *memory = real::map_memory(4 * size);
  driver.script("fail_import_above=4096");
  const real::CapturedStderr captured;
  for (int i = 0; i < 3; ++i) CHECK_EQUAL(hp_register(memory, size, 0), HP_PAGEABLE);
  CHECK_EQUAL(hp_last_native_error(), ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
  CHECK(real::contains(hp_last_error(), "zexDriverImportExternalPointer"));
  CHECK(real::contains(hp_last_error(), "0x70000002"));
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_E_REFUSED);
  CHECK_EQUAL(captured.lines(), 1);
  driver.script("fail_import_above=0");
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK(driver.covers(memory) != 0);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  CHECK_EQUAL(driver.count("live"), 0);
}

// HOSTPIN_MAX_SEGMENT cuts four megabytes into four segments; the third is refused.
void refused_segment_rolls_back_the_others() {
  const OwnDriver driver;
  char *memory = real::map_memory(4 * size);
  driver.script("fail_import_call=3");
  CHECK_EQUAL(hp_register(memory, 4 * size, HP_REGISTER_REQUIRED), HP_E_REFUSED);
  CHECK_EQUAL(driver.count("import"), 3);
  CHECK_EQUAL(driver.count("release"), 2);
  CHECK_EQUAL(driver.count("live"), 0);
  CHECK_EQUAL(hp_register(memory, 4 * size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(driver.count("live"), 4);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  CHECK_EQUAL(driver.count("live"), 0);
}

void failed_release_is_stuck_until_it_works() {
  const OwnDriver driver;
  char *memory = real::map_memory(size);
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  driver.script("fail_release_call=1");
  CHECK_EQUAL(hp_unregister(memory), HP_E_STUCK);
  CHECK_EQUAL(hp_last_native_error(), ZE_RESULT_ERROR_UNKNOWN);
  CHECK_EQUAL(driver.count("live"), 1);
  CHECK_EQUAL(real::region(memory, size).stuck, 1);
  CHECK_EQUAL(real::stats().stuck_segments, 1);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  CHECK_EQUAL(driver.count("live"), 0);
  CHECK_EQUAL(hp_query(memory, size, nullptr), HP_PAGEABLE);
}

// Our driver with the memmap extension.

void memmap_maps_at_the_host_address() {
  const OwnDriver driver;
  char *memory = real::map_memory(2 * size);
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(driver.count("memmap"), 1);
  CHECK_EQUAL(driver.count("import"), 0);
  CHECK((real::backend().capabilities & HP_CAP_HOST_ADDRESS) != 0);
  CHECK_EQUAL(real::region(memory, size).host_address, 1);
  void *device = nullptr;
  CHECK_EQUAL(hp_device_pointer(memory + 100, &device), HP_OK);
  CHECK(device == memory + 100);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  CHECK_EQUAL(driver.count("memmap"), 0);
}

// The extension maps whole pages only; our driver ends the program if it is given less.
void memmap_maps_whole_pages() {
  const OwnDriver driver;
  char *memory = real::map_memory(2 * page);
  CHECK_EQUAL(hp_register(memory + 100, 1000, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(hp_register(memory + 2000, page, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(driver.count("memmap"), 2);
  CHECK_EQUAL(hp_unregister(memory + 100), HP_OK);
  CHECK_EQUAL(hp_unregister(memory + 2000), HP_OK);
  CHECK_EQUAL(driver.count("memmap"), 0);
}

void memmap_is_opt_in() {
  const OwnDriver driver;
  char *memory = real::map_memory(size);
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(driver.count("memmap_call"), 0);
  CHECK_EQUAL(driver.count("live"), 1);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
}

// The driver advertises it and yet gives memory of its own: that is given back, and the range is not called pinned.
void memmap_that_gives_other_memory() {
  const OwnDriver driver;
  char *memory = real::map_memory(size);
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_E_REFUSED);
  CHECK_EQUAL(driver.count("allocation"), 0);
}

// A range that zeMemFree leaves mapped must not be unmapped by the application, so it stays known as stuck. It is told what
// to do, when its log callback may try the release again.
void memmap_that_keeps_a_freed_range() {
  const OwnDriver driver;
  struct Told {
    char *memory = real::map_memory(size);
    std::string line;
    int32_t again = HP_OK;
  } told;
  hp_set_log_callback(
      [](int32_t, const char *line, void *user) {
        auto &t = *static_cast<Told *>(user);
        t.line = line;
        t.again = hp_unregister(t.memory);
      },
      &told);
  CHECK_EQUAL(hp_register(told.memory, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(hp_unregister(told.memory), HP_E_STUCK);
  for (const std::string_view text : {std::string_view(hp_last_error()), std::string_view(told.line)}) {
    CHECK(real::contains(text, "zeMemFree"));
    CHECK(real::contains(text, "do not unmap"));
    CHECK(real::contains(text, "HOSTPIN_ZE_MEMMAP=0"));
  }
  CHECK_EQUAL(told.again, HP_E_STUCK);
  CHECK_EQUAL(real::region(told.memory, size).stuck, 1);
}

void refused_memmap() {
  const OwnDriver driver;
  char *memory = real::map_memory(4 * size);
  driver.script("fail_memmap_call=3");
  CHECK_EQUAL(hp_register(memory, 4 * size, HP_REGISTER_REQUIRED), HP_E_REFUSED);
  CHECK_EQUAL(hp_last_native_error(), ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
  CHECK_EQUAL(driver.count("memmap"), 0);
  CHECK_EQUAL(hp_register(memory, 4 * size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(driver.count("memmap"), 4);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  CHECK_EQUAL(driver.count("memmap"), 0);
}

// Both drivers, whose handles the loader wraps.

void both_import() {
  char *memory = real::map_memory(size);
  CHECK_EQUAL(real::backend().device_count, 2);
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  const Drivers drivers;
  CHECK_EQUAL(drivers.covering(memory), 2);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  CHECK_EQUAL(drivers.covering(memory), 0);
}

void both_roll_back() {
  const OwnDriver driver;
  const Drivers drivers;
  char *memory = real::map_memory(size);
  CHECK_EQUAL(real::backend().device_count, 2);
  driver.script("fail_import_call=1");
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_E_REFUSED);
  CHECK_EQUAL(drivers.covering(memory), 0);
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(drivers.covering(memory), 2);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  CHECK_EQUAL(drivers.covering(memory), 0);
}

// The application imported a page of the range into Intel's driver by itself, so that one would refuse.
void foreign_import_in_intel() {
  const OwnDriver own;
  const Drivers drivers;
  char *memory = real::map_memory(size + page);
  CHECK_EQUAL(real::backend().device_count, 2);
  const auto intel = std::ranges::find_if(drivers.all(), [&](const real::Imports &driver) {
    CHECK_EQUAL(driver.add(memory + size - page, 2 * page), ZE_RESULT_SUCCESS);
    const bool ours = own.covers(memory + size - page) != 0;
    if (ours) CHECK_EQUAL(driver.remove(memory + size - page), ZE_RESULT_SUCCESS);
    return !ours;
  });
  CHECK(intel != drivers.all().end());
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_E_REFUSED);
  CHECK(real::contains(hp_last_error(), "other code in this process"));
  CHECK_EQUAL(drivers.covering(memory), 0);
  CHECK_EQUAL(own.count("live"), 0);
  CHECK_EQUAL(intel->remove(memory + size - page), ZE_RESULT_SUCCESS);
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(drivers.covering(memory), 2);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
}

// Our driver has no GPU, or no import function: Intel's is used alone.
void only_intel_imports() {
  const OwnDriver own;
  char *memory = real::map_memory(size);
  CHECK_EQUAL(real::backend().backend, HP_BACKEND_LEVEL_ZERO);
  CHECK_EQUAL(real::backend().device_count, 1);
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(own.count("import"), 0);
  CHECK(spy::calls("zeInit") + spy::calls("zeInitDrivers") > 0);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
}

constexpr real::Case cases[] = {
    {"register_and_release", register_and_release},
    {"no_device_pointer", no_device_pointer},
    {"same_range_is_counted", same_range_is_counted},
    {"random_ranges", random_ranges},
    {"forked_child_reaches_nobody", forked_child_reaches_nobody},
    {"exit_with_live_registrations", exit_with_live_registrations},
    {"no_import_function", no_import_function},
    {"no_release_function", no_release_function},
    {"failing_init", failing_init},
    {"failing_driver_list", failing_driver_list},
    {"no_device", no_device},
    {"refused_import", refused_import},
    {"refused_segment_rolls_back_the_others", refused_segment_rolls_back_the_others},
    {"failed_release_is_stuck_until_it_works", failed_release_is_stuck_until_it_works},
    {"memmap_maps_at_the_host_address", memmap_maps_at_the_host_address},
    {"memmap_maps_whole_pages", memmap_maps_whole_pages},
    {"memmap_is_opt_in", memmap_is_opt_in},
    {"memmap_that_gives_other_memory", memmap_that_gives_other_memory},
    {"memmap_that_keeps_a_freed_range", memmap_that_keeps_a_freed_range},
    {"refused_memmap", refused_memmap},
    {"both_import", both_import},
    {"both_roll_back", both_roll_back},
    {"foreign_import_in_intel", foreign_import_in_intel},
    {"only_intel_imports", only_intel_imports},
};

} // namespace

int main(int argc, char **argv) { return real::run_case(argc, argv, cases); }
