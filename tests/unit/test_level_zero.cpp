// The Level Zero backend over a loader and drivers that this program makes up: several drivers with wrapped handles, each of
// which can refuse any step. Their import tables have the gaps of Intel's.
#include <hostpin.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "backend.h"
#include "catch.h"
#include "level_zero_abi.h"
#include "log.h"
#include "runtime.h"
#include "system.h"

using namespace hp;

namespace {

constexpr const char *kFile = "/fake/libze_loader.so.1";
constexpr uint64_t kPage = 4096;
constexpr uint64_t kBase = 0x7f0000000000;

using Table = std::map<uint64_t, uint64_t>;  // start and length

struct Driver {
  std::vector<uint32_t> device_types = {ze::kDeviceTypeGpu};
  Table imports;
  Table maps;
  std::vector<uint64_t> kept;  // freed, and mapped still
  std::string missing;         // the look-up of this function fails
  std::string null;            // the look-up of this one succeeds and gives nothing
  ze::Result device_get = 0, translate = 0, import = 0, release = 0, context_create = 0, mem_alloc = 0;
  bool memmap = false, memmap_ignored = false, keeps = false;
  Table just_before;  // imports that somebody makes right before the next of ours
  uint32_t last_flags = 0;
  char wrapper = 0;  // the loader's handle points here, the driver's own to the driver
};

// Everything outside the backend. `calls` is what reached it, in order; `wrong` what must never have.
struct World {
  std::vector<Driver> drivers;
  std::vector<std::string> calls, wrong, log;
  std::vector<std::string> absent;  // symbols that the loader does not have
  ze::Result init = 0, init_drivers = 0, driver_get = 0;
  uint32_t init_flags = 0;
  bool loaded = true, openable = true, failed = false, torn_down = false, quiet = false, wraps = true, out_of_memory = false;
  char handle = 0;
  std::mutex mutex;

  void note(const std::string &call) {
    const std::lock_guard lock(mutex);
    if (failed) wrong.push_back(call + " after a failed initialisation");
    if (torn_down) wrong.push_back(call + " after the tear-down");
    if (!quiet) calls.push_back(call);
  }
  std::string number(const Driver &d) const { return std::to_string(&d - drivers.data()); }
};
World *w = nullptr;

Driver &behind(ze::DriverHandle handle) {
  for (Driver &d : w->drivers)
    if (reinterpret_cast<char *>(handle) == &d.wrapper) return d;
  w->wrong.push_back("a handle that is not the loader's");
  return w->drivers.at(0);
}

Driver &own(ze::OwnDriverHandle handle) {
  for (Driver &d : w->drivers)
    if (reinterpret_cast<char *>(handle) == (w->wraps ? reinterpret_cast<char *>(&d) : &d.wrapper)) return d;
  w->wrong.push_back("a wrapped handle in a driver's function");
  return w->drivers.at(0);
}

uint64_t address(const void *p) { return reinterpret_cast<uint64_t>(p); }

Table::iterator around(Table &table, uint64_t at) {
  auto after = table.upper_bound(at);
  if (after == table.begin()) return table.end();
  --after;
  return at - after->first < after->second ? after : table.end();
}

ze::Result list(uint32_t *count, ze::DriverHandle *handles) {
  *count = std::min(*count, static_cast<uint32_t>(w->drivers.size()));
  for (uint32_t i = 0; i < *count; ++i) handles[i] = reinterpret_cast<ze::DriverHandle>(&w->drivers[i].wrapper);
  return ze::kSuccess;
}

ze::Result init(uint32_t flags) {
  w->note("zeInit");
  w->init_flags = flags;
  w->failed = w->init != 0;
  return w->init;
}

ze::Result init_drivers(uint32_t *count, ze::DriverHandle *handles, ze::InitDriverTypeDesc *desc) {
  w->note("zeInitDrivers");
  if (desc->stype != ze::kStypeInitDriverTypeDesc) w->wrong.push_back("stype of zeInitDrivers");
  w->init_flags = desc->flags;
  w->failed = w->init_drivers != 0 && w->init_drivers != ze::kUnsupportedFeature && w->init_drivers != ze::kUninitialized;
  return w->init_drivers ? w->init_drivers : list(count, handles);
}

ze::Result driver_get(uint32_t *count, ze::DriverHandle *handles) {
  w->note("zeDriverGet");
  w->failed = w->driver_get != 0;
  return w->driver_get ? w->driver_get : list(count, handles);
}

ze::Result driver_get_properties(ze::DriverHandle handle, ze::DriverProperties *p) {
  w->note("zeDriverGetProperties");
  p->driver_version = 0x1020003 + static_cast<uint32_t>(&behind(handle) - w->drivers.data());
  return ze::kSuccess;
}

ze::Result get_extensions(ze::DriverHandle handle, uint32_t *count, ze::DriverExtensionProperties *out) {
  const uint32_t have = behind(handle).memmap ? 2 : 1;
  if (out && *count >= 2) {
    std::strcpy(out[1].name, ze::kMemmapExtension);
    out[1].version = ze::kMemmapVersion;
  }
  if (out && *count >= 1) std::strcpy(out[0].name, "ZE_extension_something");
  *count = out ? std::min(*count, have) : have;
  return ze::kSuccess;
}

ze::Result device_get(ze::DriverHandle handle, uint32_t *count, ze::DeviceHandle *devices) {
  w->note("zeDeviceGet");
  Driver &d = behind(handle);
  if (d.device_get) return d.device_get;
  *count = std::min(*count, static_cast<uint32_t>(d.device_types.size()));
  for (uint32_t i = 0; i < *count; ++i) devices[i] = reinterpret_cast<ze::DeviceHandle>(&d.device_types[i]);
  return ze::kSuccess;
}

ze::Result device_get_properties(ze::DeviceHandle device, ze::DeviceProperties *p) {
  p->type = *reinterpret_cast<uint32_t *>(device);
  p->max_mem_alloc_size = uint64_t{4} << 30;
  return ze::kSuccess;
}

ze::Result translate(uint32_t type, void *in, void **out) {
  if (type != ze::kHandleDriver) w->wrong.push_back("translated something else than a driver");
  Driver &d = behind(static_cast<ze::DriverHandle>(in));
  if (d.translate == 0) *out = &d;
  return d.translate;
}

ze::Result get_versions(size_t *count, ze::ComponentVersion *out) {
  if (w->out_of_memory) throw std::bad_alloc();
  *count = 2;
  if (!out) return ze::kSuccess;
  out[0] = {"tracing layer", 0, 9, 9, 9};
  out[1] = {"loader", 0, 1, 8, 12};
  return ze::kSuccess;
}

bool in_tear_down() { return w->torn_down; }

// As Intel's: a range inside an import is taken and not recorded, one around an import is taken.
ze::Result import_pointer(ze::OwnDriverHandle handle, void *p, size_t size) {
  Driver &d = own(handle);
  w->note("import " + w->number(d));
  if (d.import) return d.import;
  const std::lock_guard lock(w->mutex);
  d.imports.merge(d.just_before);
  const auto head = around(d.imports, address(p));
  const auto tail = around(d.imports, address(p) + size - 1);
  if (head != d.imports.end() && tail == d.imports.end()) return ze::kHandleObjectInUse;
  if (head == d.imports.end() && tail != d.imports.end()) return ze::kInvalidSize;
  if (head != tail) return ze::kOverlappingRegions;
  if (head == d.imports.end()) d.imports[address(p)] = size;
  return ze::kSuccess;
}

ze::Result release_pointer(ze::OwnDriverHandle handle, void *p) {
  Driver &d = own(handle);
  w->note("release " + w->number(d));
  if (d.release) return d.release;
  const std::lock_guard lock(w->mutex);
  const auto found = around(d.imports, address(p));
  if (found == d.imports.end()) return ze::kInvalidArgument;
  if (found->first != address(p)) w->wrong.push_back("a release inside an import");
  d.imports.erase(found);
  return ze::kSuccess;
}

ze::Result base_address(ze::OwnDriverHandle handle, void *p, void **base) {
  Driver &d = own(handle);
  const std::lock_guard lock(w->mutex);
  const auto found = around(d.imports, address(p));
  if (found == d.imports.end()) return ze::kInvalidArgument;
  if (base) *base = reinterpret_cast<void *>(found->first);
  return ze::kSuccess;
}

ze::Result get_function(ze::DriverHandle handle, const char *name, void **out) {
  w->note("zeDriverGetExtensionFunctionAddress");
  const Driver &d = behind(handle);
  if (d.missing == name) return ze::kInvalidArgument;
  if (d.null == name) return ze::kSuccess;
  const std::map<std::string, void *> functions = {
      {"zexDriverImportExternalPointer", reinterpret_cast<void *>(import_pointer)},
      {"zexDriverReleaseImportedPointer", reinterpret_cast<void *>(release_pointer)},
      {"zexDriverGetHostPointerBaseAddress", reinterpret_cast<void *>(base_address)}};
  *out = functions.at(name);
  return ze::kSuccess;
}

ze::Result context_create(ze::DriverHandle handle, const ze::ContextDesc *, ze::ContextHandle *out) {
  Driver &d = behind(handle);
  *out = reinterpret_cast<ze::ContextHandle>(&d);
  return d.context_create;
}

Driver &in_context(ze::ContextHandle context) { return *reinterpret_cast<Driver *>(context); }

ze::Result mem_alloc_host(ze::ContextHandle context, const ze::HostMemAllocDesc *desc, size_t size, size_t, void **out) {
  Driver &d = in_context(context);
  w->note("map " + w->number(d));
  if (d.mem_alloc) return d.mem_alloc;
  const auto *memmap = static_cast<const ze::MemmapDesc *>(desc->next);
  if (!memmap || memmap->stype != ze::kStypeMemmapDesc || memmap->size != size) w->wrong.push_back("a plain allocation");
  d.last_flags = desc->flags;
  *out = d.memmap_ignored ? &d.last_flags : memmap->memory;
  d.maps[address(*out)] = size;
  return ze::kSuccess;
}

ze::Result mem_free(ze::ContextHandle context, void *p) {
  Driver &d = in_context(context);
  w->note("free " + w->number(d));
  if (std::find(d.kept.begin(), d.kept.end(), address(p)) != d.kept.end()) w->wrong.push_back("freed twice");
  if (d.maps.count(address(p)) == 0) return ze::kInvalidArgument;
  if (d.keeps) d.kept.push_back(address(p));
  else d.maps.erase(address(p));
  return ze::kSuccess;
}

ze::Result get_alloc_properties(ze::ContextHandle context, const void *p, ze::MemoryAllocationProperties *out, ze::DeviceHandle *) {
  Driver &d = in_context(context);
  out->type = around(d.maps, address(p)) == d.maps.end() ? ze::kMemoryTypeUnknown : 1;
  return ze::kSuccess;
}

ze::Result get_address_range(ze::ContextHandle context, const void *p, void **base, size_t *size) {
  Driver &d = in_context(context);
  const auto found = around(d.maps, address(p));
  if (found == d.maps.end()) return ze::kAddressNotFound;
  *base = reinterpret_cast<void *>(found->first);
  *size = found->second;
  return ze::kSuccess;
}

void *fake_symbol(void *, const char *name) {
  static const std::map<std::string, void *> symbols = {
      {"zeInit", reinterpret_cast<void *>(init)},
      {"zeInitDrivers", reinterpret_cast<void *>(init_drivers)},
      {"zeDriverGet", reinterpret_cast<void *>(driver_get)},
      {"zeDriverGetProperties", reinterpret_cast<void *>(driver_get_properties)},
      {"zeDriverGetExtensionProperties", reinterpret_cast<void *>(get_extensions)},
      {"zeDriverGetExtensionFunctionAddress", reinterpret_cast<void *>(get_function)},
      {"zeDeviceGet", reinterpret_cast<void *>(device_get)},
      {"zeDeviceGetProperties", reinterpret_cast<void *>(device_get_properties)},
      {"zeContextCreate", reinterpret_cast<void *>(context_create)},
      {"zeMemAllocHost", reinterpret_cast<void *>(mem_alloc_host)},
      {"zeMemFree", reinterpret_cast<void *>(mem_free)},
      {"zeMemGetAllocProperties", reinterpret_cast<void *>(get_alloc_properties)},
      {"zeMemGetAddressRange", reinterpret_cast<void *>(get_address_range)},
      {"zelLoaderTranslateHandle", reinterpret_cast<void *>(translate)},
      {"zelLoaderGetVersions", reinterpret_cast<void *>(get_versions)},
      {"zelCheckIsLoaderInTearDown", reinterpret_cast<void *>(in_tear_down)}};
  const auto found = symbols.find(name);
  if (found == symbols.end() || std::count(w->absent.begin(), w->absent.end(), name)) return nullptr;
  return found->second;
}

void *fake_open(const char *file, int) {
  w->calls.push_back(std::string("dlopen ") + file);
  return w->openable ? &w->handle : nullptr;
}

int fake_iterate(int (*visit)(dl_phdr_info *, size_t, void *), void *data) {
  dl_phdr_info info{};
  info.dlpi_name = kFile;
  return w->loaded ? visit(&info, sizeof(info), data) : 0;
}

// One process: its world, and what load() was given and said.
struct Process : World {
  Config config;
  std::vector<void *> asked;
  hp_backend_info info{};
  Text reason;
  Text warning;

  explicit Process(size_t count) {
    drivers.resize(count);
    w = this;
    loader = {fake_open, fake_symbol, fake_iterate};
    set_log_callback([](int32_t, const char *line, void *self) { static_cast<World *>(self)->log.push_back(line); },
                     static_cast<World *>(this));
  }
  ~Process() {
    set_log_callback(nullptr, nullptr);
  }
  Process(const Process &) = delete;
  Process &operator=(const Process &) = delete;

  bool load(Stage stage = Stage::loaded, bool forced = false) {
    Look look{config, stage, forced, asked, info, reason, warning};
    return kLevelZero.load(look);
  }
  // Loads, and forgets the calls of that.
  void start() {
    REQUIRE(load());
    calls.clear();
  }
  bool says(const char *part) const { return std::strstr(reason.c_str(), part) != nullptr; }
};

Outcome pin(uint64_t start, uint64_t len, uint32_t flags = 0) {
  Pinned ignored;
  return kLevelZero.pin(start, len, flags, ignored);
}

using Calls = std::vector<std::string>;

}  // namespace

TEST_CASE("what was loaded is told") {
  Process p(2);
  p.drivers[1].device_types = {ze::kDeviceTypeGpu, 5, ze::kDeviceTypeGpu};
  REQUIRE(p.load());
  CHECK(std::string(p.info.runtime_file) == kFile);
  CHECK(p.info.runtime_version == 0x0108000c);
  CHECK(p.info.driver_version == 0x1020003);
  CHECK(p.info.device_count == 3);
  CHECK(p.info.capabilities == 0);
  CHECK(p.info.max_segment == 0);
  CHECK(p.reason.empty());
  CHECK(p.asked == std::vector<void *>{&p.handle});
  CHECK(p.wrong.empty());
}

TEST_CASE("GPU drivers only, by zeInitDrivers where the loader and the drivers have it") {
  Process p(1);
  SECTION("both") {
    REQUIRE(p.load());
    CHECK(p.init_flags == ze::kDriverTypeGpu);
    CHECK(std::count(p.calls.begin(), p.calls.end(), "zeInit") == 0);
    CHECK(std::count(p.calls.begin(), p.calls.end(), "zeDriverGet") == 0);
  }
  SECTION("a loader without it") {
    p.absent = {"zeInitDrivers"};
    REQUIRE(p.load());
    CHECK(p.init_flags == ze::kInitGpuOnly);
  }
  SECTION("drivers without it") {
    p.init_drivers = GENERATE(ze::kUnsupportedFeature, ze::kUninitialized);
    REQUIRE(p.load());
    CHECK(std::count(p.calls.begin(), p.calls.end(), "zeInit") == 1);
  }
  CHECK(p.wrong.empty());
}

TEST_CASE("nothing is called after a failed initialisation, nor asked a second time") {
  Process p(1);
  const char *says = "";
  SECTION("zeInitDrivers") {
    p.init_drivers = ze::kDeviceLost;
    says = "zeInitDrivers answered ZE_RESULT_ERROR_DEVICE_LOST (0x70000001)";
  }
  SECTION("zeInit") {
    p.absent = {"zeInitDrivers"};
    p.init = ze::kDeviceLost;
    says = "zeInit answered ZE_RESULT_ERROR_DEVICE_LOST (0x70000001)";
  }
  SECTION("zeInit after zeInitDrivers") {
    p.init_drivers = ze::kUnsupportedFeature;
    p.init = 0x12345678;
    says = "zeInit answered 0x12345678";
  }
  SECTION("zeDriverGet") {
    p.absent = {"zeInitDrivers"};
    p.driver_get = ze::kUnknown;
    says = "zeDriverGet answered ZE_RESULT_ERROR_UNKNOWN (0x7ffffffe)";
  }
  CHECK_FALSE(p.load());
  CHECK(p.says(says));
  CHECK(p.says(kFile));
  const std::string first = p.reason.c_str();
  p.calls.clear();
  p.failed = false;
  CHECK_FALSE(p.load());
  CHECK_FALSE(p.load(Stage::open, true));
  CHECK(p.reason.c_str() == first);
  CHECK(std::all_of(p.calls.begin(), p.calls.end(), [](const std::string &c) { return c.rfind("dlopen", 0) == 0; }));
  CHECK(p.info.runtime_file == nullptr);
  CHECK(p.wrong.empty());
}

TEST_CASE("a look that ran out of memory is made again") {
  Process p(1);
  p.out_of_memory = true;
  CHECK_THROWS_AS(p.load(), std::bad_alloc);
  p.out_of_memory = false;
  CHECK(p.load());
}

TEST_CASE("a loader without a needed function is not used") {
  Process p(1);
  p.absent = {"zeDeviceGetProperties"};
  CHECK_FALSE(p.load());
  CHECK(p.says("/fake/libze_loader.so.1 has no zeDeviceGetProperties"));
  CHECK(p.asked.size() == 1);
}

TEST_CASE("each stage looks in its own place") {
  Process p(1);
  p.loaded = false;
  SECTION("named") {
    CHECK_FALSE(p.load(Stage::named));
    CHECK(p.calls.empty());
    p.config.ze_loader = "/other/loader.so";
    REQUIRE(p.load(Stage::named));
    CHECK(p.calls.front() == "dlopen /other/loader.so");
    CHECK(std::string(p.info.runtime_file) == "/other/loader.so");
  }
  SECTION("loaded") {
    CHECK_FALSE(p.load(Stage::loaded));
    CHECK(p.calls.empty());
    CHECK(p.reason.empty());
  }
  SECTION("open") {
    constexpr const char *nodes[] = {"/dev/dri/renderD*", "/dev/dxg"};
    const bool node = any_exists(nodes);
    CHECK(p.load(Stage::open) == node);
    CHECK(p.calls.empty() == !node);
    CHECK(p.says("no Intel GPU device node (/dev/dri/renderD*)") == !node);
  }
  SECTION("open, forced") {
    REQUIRE(p.load(Stage::open, true));
    CHECK(p.calls.front() == "dlopen libze_loader.so.1");
  }
  SECTION("open, not there") {
    p.openable = false;
    p.reason.add("before");
    CHECK_FALSE(p.load(Stage::open, true));
    CHECK(p.says("before; "));
    CHECK(p.asked.empty());
  }
}

TEST_CASE("drivers that cannot pin for a GPU are left out") {
  struct Fault {
    void (*set)(Driver &);
    const char *says;
  };
  const auto fault = GENERATE(values<Fault>({
      {[](Driver &d) { d.device_types = {}; }, "no GPU device"},
      {[](Driver &d) { d.device_types = {5}; }, "no GPU device"},
      {[](Driver &d) { d.device_get = ze::kDeviceLost; }, "zeDeviceGet answered ZE_RESULT_ERROR_DEVICE_LOST"},
      {[](Driver &d) { d.translate = ze::kInvalidArgument; }, "zelLoaderTranslateHandle answered ZE_RESULT_ERROR_INVALID"},
      {[](Driver &d) { d.missing = "zexDriverImportExternalPointer"; }, "no zexDriverImportExternalPointer: "},
      {[](Driver &d) { d.null = "zexDriverImportExternalPointer"; }, "no zexDriverImportExternalPointer: "},
      {[](Driver &d) { d.missing = "zexDriverReleaseImportedPointer"; }, "no zexDriverReleaseImportedPointer: "},
      {[](Driver &d) { d.null = "zexDriverReleaseImportedPointer"; }, "no zexDriverReleaseImportedPointer: "},
  }));
  INFO(fault.says);
  SECTION("one of three is left") {
    Process p(3);
    fault.set(p.drivers[0]);
    fault.set(p.drivers[2]);
    p.start();
    CHECK(p.info.device_count == 1);
    CHECK(p.info.driver_version == 0x1020004);
    CHECK(pin(kBase, kPage).failure == Failure::none);
    CHECK(kLevelZero.unpin(kBase, kPage).failure == Failure::none);
    CHECK(p.calls == Calls{"import 1", "release 1"});
    CHECK(p.wrong.empty());
  }
  SECTION("none of two is left") {
    Process p(2);
    fault.set(p.drivers[0]);
    fault.set(p.drivers[1]);
    CHECK_FALSE(p.load());
    CHECK(p.says((std::string(kFile) + ": driver 0: " + fault.says).c_str()));
    CHECK(p.says((std::string(", driver 1: ") + fault.says).c_str()));
    CHECK(p.wrong.empty());
  }
}

TEST_CASE("no driver at all") {
  Process p(0);
  CHECK_FALSE(p.load());
  CHECK(p.says("no GPU driver"));
}

TEST_CASE("a loader that does not wrap handles needs no translation") {
  Process p(2);
  p.absent = {"zelLoaderTranslateHandle"};
  p.wraps = false;
  p.start();
  CHECK(pin(kBase, kPage).failure == Failure::none);
  CHECK(kLevelZero.unpin(kBase, kPage).failure == Failure::none);
  CHECK(p.wrong.empty());
}

TEST_CASE("a range goes into every driver and out of them in reverse") {
  Process p(3);
  p.start();
  Pinned pinned{7, true};
  CHECK(kLevelZero.pin(kBase, 4 * kPage, 0, pinned).failure == Failure::none);
  CHECK(pinned.device == 0);
  CHECK_FALSE(pinned.host_address);
  for (const Driver &d : p.drivers) CHECK(d.imports == Table{{kBase, 4 * kPage}});
  uint64_t device = 0;
  CHECK(kLevelZero.device_pointer(kBase, device).failure == Failure::unsupported);
  CHECK(kLevelZero.unpin(kBase, 4 * kPage).failure == Failure::none);
  CHECK(p.calls == Calls{"import 0", "import 1", "import 2", "release 2", "release 1", "release 0"});
  CHECK(p.wrong.empty());
}

TEST_CASE("when one driver refuses, those before it give the range back in reverse") {
  Process p(3);
  p.start();
  p.drivers[2].import = ze::kOutOfHostMemory;
  const Outcome o = pin(kBase, kPage);
  CHECK(o.failure == Failure::memory);
  CHECK(o.native == 0x70000002);
  CHECK(std::string(o.call) == "zexDriverImportExternalPointer");
  CHECK(p.calls == Calls{"import 0", "import 1", "import 2", "release 1", "release 0"});
  for (const Driver &d : p.drivers) CHECK(d.imports.empty());
  CHECK(p.log.empty());
  p.drivers[2].import = 0;
  CHECK(pin(kBase, kPage).failure == Failure::none);
  CHECK(kLevelZero.unpin(kBase, kPage).failure == Failure::none);
  CHECK(p.wrong.empty());
}

TEST_CASE("what a roll-back cannot give back stays known") {
  Process p(3);
  p.start();
  p.drivers[2].import = ze::kOutOfHostMemory;
  p.drivers[0].release = ze::kUnknown;
  const Outcome refused = pin(kBase, 2 * kPage);
  CHECK(refused.native == ze::kOutOfHostMemory);
  CHECK(refused.held);
  p.drivers[2].import = 0;
  p.calls.clear();
  SECTION("no pin of a part of it while it is held") {
    const Outcome o = pin(kBase + kPage, kPage);
    CHECK(o.native == ze::kUnknown);
    CHECK(std::string(o.call) == "zexDriverReleaseImportedPointer");
    CHECK(p.calls == Calls{"release 0"});
    p.drivers[0].release = 0;
    CHECK(pin(kBase + kPage, kPage).failure == Failure::none);
    CHECK(p.calls == Calls{"release 0", "release 0", "import 0", "import 1", "import 2"});
    CHECK(p.drivers[0].imports == Table{{kBase + kPage, kPage}});
  }
  SECTION("a pin beside it is free") {
    CHECK(pin(kBase + 2 * kPage, kPage).failure == Failure::none);
    CHECK(p.calls == Calls{"import 0", "import 1", "import 2"});
    p.drivers[0].release = 0;
    CHECK(kLevelZero.unpin(kBase, 2 * kPage).failure == Failure::none);
  }
  SECTION("unpin releases where it is held, and nowhere else") {
    p.drivers[1].imports[kBase] = kPage;  // somebody's
    CHECK(kLevelZero.unpin(kBase, 2 * kPage).native == ze::kUnknown);
    p.drivers[0].release = 0;
    CHECK(kLevelZero.unpin(kBase, 2 * kPage).failure == Failure::none);
    CHECK(p.calls == Calls{"release 0", "release 0"});
    CHECK(p.drivers[1].imports.size() == 1);
  }
  CHECK(p.wrong.empty());
}

TEST_CASE("a release that fails in one driver is made in the others and tried again in that one") {
  Process p(3);
  p.start();
  REQUIRE(pin(kBase, kPage).failure == Failure::none);
  p.calls.clear();
  p.drivers[1].release = ze::kDeviceLost;
  for (int i = 0; i < 2; ++i) {
    const Outcome o = kLevelZero.unpin(kBase, kPage);
    CHECK(o.failure == Failure::device);
    CHECK(o.native == ze::kDeviceLost);
  }
  p.drivers[1].release = 0;
  CHECK(kLevelZero.unpin(kBase, kPage).failure == Failure::none);
  CHECK(p.calls == Calls{"release 2", "release 1", "release 0", "release 1", "release 1"});
  REQUIRE(pin(kBase, kPage).failure == Failure::none);
  CHECK(kLevelZero.unpin(kBase, kPage).failure == Failure::none);
  CHECK(p.wrong.empty());
}

TEST_CASE("more ranges than can be noted are complained of") {
  Process p(2);
  p.start();
  p.drivers[0].release = ze::kUnknown;
  for (uint64_t i = 0; i < 65; ++i) {
    REQUIRE(pin(kBase + i * kPage, kPage).failure == Failure::none);
    const Outcome o = kLevelZero.unpin(kBase + i * kPage, kPage);
    CHECK(o.failure == Failure::other);
    CHECK((o.hint != nullptr) == (i == 64));
  }
  p.drivers[0].release = 0;
  for (uint64_t i = 0; i < 64; ++i) CHECK(kLevelZero.unpin(kBase + i * kPage, kPage).failure == Failure::none);
  CHECK(kLevelZero.unpin(kBase + 64 * kPage, kPage).failure == Failure::gone);
  CHECK(p.drivers[0].imports.empty());
}

TEST_CASE("a driver that does not know a range any more has released it") {
  Process p(2);
  p.start();
  REQUIRE(pin(kBase, kPage).failure == Failure::none);
  SECTION("one") { p.drivers[0].release = ze::kInvalidArgument; }
  SECTION("both") { p.drivers[0].release = p.drivers[1].release = ze::kUninitialized; }
  CHECK(kLevelZero.unpin(kBase, kPage).failure == Failure::gone);
  CHECK(p.calls == Calls{"import 0", "import 1", "release 1", "release 0"});
  CHECK(p.log.empty());
}

TEST_CASE("a failure is told before a pin that is gone") {
  Process p(2);
  p.start();
  REQUIRE(pin(kBase, kPage).failure == Failure::none);
  const int gone = GENERATE(0, 1);
  p.drivers[static_cast<size_t>(gone)].release = ze::kInvalidArgument;
  p.drivers[static_cast<size_t>(1 - gone)].release = ze::kUnknown;
  CHECK(kLevelZero.unpin(kBase, kPage).failure == Failure::other);
  p.drivers[static_cast<size_t>(1 - gone)].release = 0;
  CHECK(kLevelZero.unpin(kBase, kPage).failure == Failure::none);
}

TEST_CASE("after the loader's tear-down nothing is called") {
  Process p(1);
  p.start();
  REQUIRE(pin(kBase, kPage).failure == Failure::none);
  p.calls.clear();
  p.torn_down = true;
  CHECK(kLevelZero.unpin(kBase, kPage).failure == Failure::gone);
  CHECK(pin(kBase + kPage, kPage).failure == Failure::device);
  CHECK(p.calls.empty());
  CHECK(p.wrong.empty());
}

TEST_CASE("a range that wraps reaches no driver") {
  Process p(1);
  p.start();
  CHECK(pin(kBase, UINT64_MAX).failure == Failure::invalid);
  CHECK(pin(kBase, 0 - kBase).failure == Failure::invalid);
  CHECK(pin(kBase, 0).failure == Failure::invalid);
  CHECK(p.calls.empty());
}

TEST_CASE("what others imported is found before anything is imported") {
  Process p(2);
  p.start();
  constexpr uint64_t kLen = 64 * kPage;
  Failure expected = Failure::foreign_part;
  const auto others = [&](std::initializer_list<Table::value_type> table) { p.drivers[0].imports = p.drivers[1].imports = table; };
  SECTION("all of it") {
    others({{kBase - kPage, kLen + 2 * kPage}});
    expected = Failure::foreign;
  }
  SECTION("all of it, to the byte") {
    others({{kBase, kLen}});
    expected = Failure::foreign;
  }
  SECTION("all of it, in three pieces") {
    others({{kBase - 5, kPage}, {kBase - 5 + kPage, 20 * kPage}, {kBase - 5 + 21 * kPage, kLen}});
    expected = Failure::foreign;
  }
  SECTION("all but a byte in the middle") { others({{kBase, 30 * kPage}, {kBase + 30 * kPage + 1, kLen}}); }
  SECTION("all but its first byte") { others({{kBase + 1, kLen}}); }
  SECTION("all but its last byte") { others({{kBase, kLen - 1}}); }
  SECTION("its first byte") { others({{kBase - kPage, kPage + 1}}); }
  SECTION("its last byte") { others({{kBase + kLen - 1, 1}}); }
  SECTION("some in the middle") { others({{kBase + 10 * kPage, 5 * kPage}}); }
  SECTION("all of it, in one of the drivers") { p.drivers[1].imports = {{kBase, kLen}}; }
  const auto before = p.drivers[0].imports;
  const Outcome o = pin(kBase, kLen);
  CHECK(o.failure == expected);
  CHECK(std::string(o.call) == "zexDriverGetHostPointerBaseAddress");
  CHECK(p.calls.empty());
  CHECK(p.drivers[0].imports == before);
  CHECK(p.wrong.empty());
}

TEST_CASE("neighbours are not foreign") {
  Process p(2);
  p.start();
  p.drivers[0].imports = p.drivers[1].imports = {{kBase - kPage, kPage}, {kBase + 2 * kPage, kPage}};
  CHECK(pin(kBase, 2 * kPage).failure == Failure::none);
  CHECK(kLevelZero.unpin(kBase, 2 * kPage).failure == Failure::none);
  CHECK(p.drivers[0].imports.size() == 2);
}

// A hundred thousand pages with one page of somebody else's, which the probes may well miss.
TEST_CASE("an import of others deep inside undoes the pin and is left alone") {
  Process p(2);
  p.start();
  constexpr uint64_t kLen = 100'000 * kPage;
  const Table others = {{kBase + 777 * kPage, kPage}};
  p.drivers[1].imports = others;
  CHECK(pin(kBase, kLen).failure == Failure::foreign_part);
  CHECK(p.calls == Calls{"import 0", "import 1", "release 1", "release 0"});
  CHECK(p.drivers[0].imports.empty());
  CHECK(p.drivers[1].imports == others);
  CHECK(p.wrong.empty());
}

TEST_CASE("an import that others make meanwhile is not released") {
  Process p(2);
  p.start();
  const Table others = {{kBase - kPage, 4 * kPage}};
  p.drivers[1].just_before = others;
  CHECK(pin(kBase, kPage).failure == Failure::foreign_part);
  CHECK(p.calls == Calls{"import 0", "import 1", "release 0"});
  CHECK(p.drivers[0].imports.empty());
  CHECK(p.drivers[1].imports == others);
  CHECK(p.wrong.empty());
}

TEST_CASE("a driver that cannot be asked for imports of others is used all the same") {
  Process p(2);
  p.drivers[1].missing = "zexDriverGetHostPointerBaseAddress";
  p.start();
  CHECK(pin(kBase, kPage).failure == Failure::none);
  CHECK(kLevelZero.unpin(kBase, kPage).failure == Failure::none);
  CHECK(p.calls == Calls{"import 0", "import 1", "release 1", "release 0"});
}

TEST_CASE("each native code has its meaning, and its number in its name") {
  Process p(1);
  p.start();
  struct Meaning {
    ze::Result code;
    Failure failure;
  };
  const auto m = GENERATE(values<Meaning>({{0x70000001, Failure::device},
                                           {0x70000002, Failure::memory},
                                           {0x70000003, Failure::memory},
                                           {0x70010000, Failure::unsupported},
                                           {0x70020000, Failure::device},
                                           {0x78000001, Failure::device},
                                           {0x78000003, Failure::unsupported},
                                           {0x78000004, Failure::invalid},
                                           {0x78000006, Failure::foreign_part},
                                           {0x78000008, Failure::invalid},
                                           {0x78000009, Failure::invalid},
                                           {0x7800001a, Failure::foreign_part},
                                           {0x7ffffffe, Failure::other},
                                           {0x7abcdef0, Failure::other}}));
  p.drivers[0].import = m.code;
  const Outcome o = pin(kBase, kPage);
  CHECK(o.failure == m.failure);
  CHECK(o.native == int64_t{m.code});
  const std::string name = kLevelZero.code_name(o.native);
  char number[16];
  std::snprintf(number, sizeof(number), "(0x%x)", m.code);
  if (m.code == 0x7abcdef0)
    CHECK(name == "unknown code");
  else
    CHECK(name.substr(name.find('(')) == number);
  CHECK(std::string(kLevelZero.code_name(-1)) == "unknown code");
}

TEST_CASE("the memmap extension, where it is asked for") {
  Process p(2);
  for (Driver &d : p.drivers) d.memmap = true;
  p.config.ze_memmap = true;
  p.start();
  Pinned pinned;
  SECTION("maps at the host address") {
    CHECK(p.info.capabilities == (HP_CAP_HOST_ADDRESS | HP_CAP_DEVICE_POINTER));
    CHECK(p.info.max_segment == uint64_t{4} << 30);
    CHECK(kLevelZero.pin(kBase, 2 * kPage, 0, pinned).failure == Failure::none);
    CHECK(pinned.device == kBase);
    CHECK(pinned.host_address);
    uint64_t device = 0;
    CHECK(kLevelZero.device_pointer(kBase, device).failure == Failure::none);
    CHECK(device == kBase);
    CHECK(p.drivers[0].last_flags == 0);
    CHECK(kLevelZero.unpin(kBase, 2 * kPage).failure == Failure::none);
    CHECK(p.calls == Calls{"map 0", "map 1", "free 1", "free 0"});
  }
  SECTION("read-only") {
    CHECK(pin(kBase, kPage, HP_REGISTER_READONLY).failure == Failure::none);
    CHECK(p.drivers[1].last_flags == ze::kHostMemReadOnly);
    CHECK(kLevelZero.unpin(kBase, kPage).failure == Failure::none);
  }
  SECTION("rolls back") {
    p.drivers[1].mem_alloc = ze::kUnsupportedSize;
    const Outcome o = pin(kBase, kPage);
    CHECK(o.failure == Failure::invalid);
    CHECK(std::string(o.call) == "zeMemAllocHost");
    CHECK(p.drivers[0].maps.empty());
  }
  SECTION("gives back the fresh memory of a driver that ignores it") {
    p.drivers[1].memmap_ignored = true;
    CHECK(pin(kBase, kPage).failure == Failure::unsupported);
    CHECK(p.calls == Calls{"map 0", "map 1", "free 1", "free 0"});
    for (const Driver &d : p.drivers) CHECK(d.maps.empty());
  }
  SECTION("whole pages only") {
    CHECK(pin(kBase + 1, kPage).failure == Failure::invalid);
    CHECK(pin(kBase, kPage + 1).failure == Failure::invalid);
    CHECK(p.calls.empty());
  }
  SECTION("what others have there") {
    p.drivers[0].maps = p.drivers[1].maps = {{kBase, 4 * kPage}};
    CHECK(pin(kBase + kPage, kPage).failure == Failure::foreign);
    CHECK(pin(kBase + 3 * kPage, 2 * kPage).failure == Failure::foreign_part);
    CHECK(p.calls.empty());
  }
  SECTION("memory that the driver keeps is stuck until it lets go, and freed once") {
    CHECK(pin(kBase, kPage).failure == Failure::none);
    p.drivers[1].keeps = true;
    for (int i = 0; i < 3; ++i) {
      const Outcome o = i < 2 ? kLevelZero.unpin(kBase, kPage) : pin(kBase, kPage);
      CHECK(o.failure == Failure::other);
      REQUIRE(o.hint);
      CHECK(std::string(o.hint).find("HOSTPIN_ZE_MEMMAP=0") != std::string::npos);
    }
    CHECK(p.calls == Calls{"map 0", "map 1", "free 1", "free 0"});
    CHECK(p.log.empty());  // the caller tells, when a log callback may call in
    p.drivers[1].maps.clear();
    CHECK(kLevelZero.unpin(kBase, kPage).failure == Failure::none);
  }
  CHECK(p.wrong.empty());
}

TEST_CASE("imports serve where the memmap extension cannot") {
  Process p(2);
  SECTION("nobody asked") {
    for (Driver &d : p.drivers) d.memmap = true;
    p.start();
    CHECK(p.warning.empty());
  }
  SECTION("not advertised by one") {
    p.config.ze_memmap = true;
    p.drivers[0].memmap = true;
    p.start();
    CHECK(std::string(p.warning.c_str()).find("no ZE_extension_external_memmap_sysmem; imports are used") != std::string::npos);
    CHECK(pin(kBase, kPage).failure == Failure::none);
    CHECK(p.calls == Calls{"map 0", "import 1"});
    CHECK(kLevelZero.unpin(kBase, kPage).failure == Failure::none);
  }
  SECTION("no context") {
    p.config.ze_memmap = true;
    for (Driver &d : p.drivers) d.memmap = true;
    p.drivers[0].context_create = p.drivers[1].context_create = ze::kOutOfDeviceMemory;
    p.start();
    CHECK(std::string(p.warning.c_str()).find("zeContextCreate answered ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY") != std::string::npos);
  }
  CHECK(p.info.capabilities == 0);
  Pinned pinned;
  CHECK(kLevelZero.pin(kBase, kPage, 0, pinned).failure == Failure::none);
  CHECK(pinned.device == 0);
  CHECK(kLevelZero.unpin(kBase, kPage).failure == Failure::none);
  CHECK(p.wrong.empty());
}

TEST_CASE("threads pin disjoint ranges at a time") {
  Process p(2);
  p.start();
  p.quiet = true;
  std::atomic<int> bad{0};
  const auto work = [&bad](uint64_t start) {
    for (int i = 0; i < 500; ++i) {
      if (pin(start, kPage).failure != Failure::none) ++bad;
      if (pin(start, kPage).failure != Failure::foreign) ++bad;
      if (kLevelZero.unpin(start, kPage).failure != Failure::none) ++bad;
      if (kLevelZero.unpin(start, kPage).failure != Failure::gone) ++bad;
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) threads.emplace_back(work, kBase + 2 * t * kPage);
  for (std::thread &t : threads) t.join();
  CHECK(bad == 0);
  for (const Driver &d : p.drivers) CHECK(d.imports.empty());
  CHECK(p.wrong.empty());
}
