// Level Zero: imports of host memory into the drivers behind libze_loader.so.1.
//
// An import belongs to one driver and serves all of its devices, for copies only: device code must not be handed the host
// address. The drivers' own checks have gaps. A range inside an earlier import is taken without a record, one around an
// earlier import hides bytes of itself, nothing is counted, and a release by any address inside ends the whole import. So
// ranges come here disjoint, and what others imported is looked for before and after each import.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <mutex>
#include <new>

#include "backend.h"
#include "level_zero_abi.h"
#include "runtime.h"
#include "system.h"

namespace hp {

namespace {

constexpr const char *kSonames[] = {"libze_loader.so.1"};
constexpr RuntimeName kLoaderName = {"libze_loader", false, kSonames};
constexpr const char *kDeviceNodes[] = {"/dev/dri/renderD*", "/dev/dxg"};  // the second is WSL's

constexpr const char *kImport = "zexDriverImportExternalPointer";
constexpr const char *kRelease = "zexDriverReleaseImportedPointer";
constexpr const char *kBaseAddress = "zexDriverGetHostPointerBaseAddress";

struct Api {
  ze::Init init;
  ze::InitDrivers init_drivers;
  ze::DriverGet driver_get;
  ze::DriverGetProperties driver_get_properties;
  ze::DriverGetExtensionProperties driver_get_extension_properties;
  ze::DriverGetExtensionFunctionAddress driver_get_extension_function_address;
  ze::DeviceGet device_get;
  ze::DeviceGetProperties device_get_properties;
  ze::ContextCreate context_create;
  ze::MemAllocHost mem_alloc_host;
  ze::MemFree mem_free;
  ze::MemGetAllocProperties mem_get_alloc_properties;
  ze::MemGetAddressRange mem_get_address_range;
  ze::LoaderTranslateHandle translate_handle;
  ze::LoaderGetVersions get_versions;
  ze::CheckIsLoaderInTearDown in_tear_down;
};

// A driver that pins, by imports or, where it has a context, by the memmap extension.
struct Driver {
  ze::OwnDriverHandle own;
  ze::ImportExternalPointer import_pointer;
  ze::ReleaseImportedPointer release_pointer;
  ze::GetHostPointerBaseAddress base_address;  // may be null
  ze::ContextHandle context;
};

constexpr uint32_t kMaxDrivers = 16;
constexpr uint32_t kMaxDevices = 64;

struct Runtime {
  Api api;
  Driver drivers[kMaxDrivers];
  uint32_t count;
  bool host_address;  // every driver maps the memory at its host address

  uint32_t all() const noexcept { return (uint32_t{1} << count) - 1; }
};

// Written once, by the load that succeeds, before anybody else is told of this backend.
constinit Runtime g{};

// ---- Native codes

struct Code {
  ze::Result result;
  Failure failure;  // what it says of a range that was to be pinned
  const char *name;  // with the number as everybody knows it
};

constexpr Code kCodes[] = {
    {ze::kSuccess, Failure::none, "ZE_RESULT_SUCCESS (0x0)"},
    {ze::kDeviceLost, Failure::device, "ZE_RESULT_ERROR_DEVICE_LOST (0x70000001)"},
    {ze::kOutOfHostMemory, Failure::memory, "ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY (0x70000002)"},
    {ze::kOutOfDeviceMemory, Failure::memory, "ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY (0x70000003)"},
    {ze::kInsufficientPermissions, Failure::unsupported, "ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS (0x70010000)"},
    {ze::kNotAvailable, Failure::other, "ZE_RESULT_ERROR_NOT_AVAILABLE (0x70010001)"},
    {ze::kDependencyUnavailable, Failure::device, "ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE (0x70020000)"},
    {ze::kUninitialized, Failure::device, "ZE_RESULT_ERROR_UNINITIALIZED (0x78000001)"},
    {ze::kUnsupportedVersion, Failure::unsupported, "ZE_RESULT_ERROR_UNSUPPORTED_VERSION (0x78000002)"},
    {ze::kUnsupportedFeature, Failure::unsupported, "ZE_RESULT_ERROR_UNSUPPORTED_FEATURE (0x78000003)"},
    {ze::kInvalidArgument, Failure::invalid, "ZE_RESULT_ERROR_INVALID_ARGUMENT (0x78000004)"},
    {ze::kInvalidNullHandle, Failure::other, "ZE_RESULT_ERROR_INVALID_NULL_HANDLE (0x78000005)"},
    {ze::kHandleObjectInUse, Failure::foreign_part, "ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE (0x78000006)"},
    {ze::kInvalidNullPointer, Failure::other, "ZE_RESULT_ERROR_INVALID_NULL_POINTER (0x78000007)"},
    {ze::kInvalidSize, Failure::invalid, "ZE_RESULT_ERROR_INVALID_SIZE (0x78000008)"},
    {ze::kUnsupportedSize, Failure::invalid, "ZE_RESULT_ERROR_UNSUPPORTED_SIZE (0x78000009)"},
    {ze::kUnsupportedAlignment, Failure::other, "ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT (0x7800000a)"},
    {ze::kInvalidEnumeration, Failure::other, "ZE_RESULT_ERROR_INVALID_ENUMERATION (0x7800000c)"},
    {ze::kUnsupportedEnumeration, Failure::unsupported, "ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION (0x7800000d)"},
    {ze::kOverlappingRegions, Failure::foreign_part, "ZE_RESULT_ERROR_OVERLAPPING_REGIONS (0x7800001a)"},
    {ze::kAddressNotFound, Failure::other, "ZE_RESULT_ERROR_ADDRESS_NOT_FOUND (0x78000021)"},
    {ze::kUnknown, Failure::other, "ZE_RESULT_ERROR_UNKNOWN (0x7ffffffe)"},
};

const Code *find_code(int64_t native) noexcept {
  for (const Code &c : kCodes)
    if (int64_t{c.result} == native) return &c;
  return nullptr;
}

const char *code_name(int64_t native) {
  const Code *c = find_code(native);
  return c ? c->name : "unknown code";
}

Outcome pinned(ze::Result result, const char *call) noexcept {
  const Code *c = find_code(result);
  return {c ? c->failure : Failure::other, int64_t{result}, call};
}

// A driver that no longer knows a range, or is no longer there, has let go of it.
Outcome released(ze::Result result, const char *call) noexcept {
  if (result == ze::kInvalidArgument || result == ze::kUninitialized) return {Failure::gone, int64_t{result}, call};
  return pinned(result, call);
}

// ---- Looking for drivers

Text &answered(Text &why, const char *call, ze::Result result) noexcept {
  if (find_code(result)) return why.add("%s answered %s", call, code_name(result));
  return why.add("%s answered 0x%x", call, result);
}

bool resolve_api(const Library &library, Api &api, Text &why) noexcept {
  const auto slot = [](auto &function) { return reinterpret_cast<void **>(&function); };
  const Symbol symbols[] = {
      {"zeInit", slot(api.init), true},
      {"zeDriverGet", slot(api.driver_get), true},
      {"zeDriverGetProperties", slot(api.driver_get_properties), true},
      {"zeDriverGetExtensionFunctionAddress", slot(api.driver_get_extension_function_address), true},
      {"zeDeviceGet", slot(api.device_get), true},
      {"zeDeviceGetProperties", slot(api.device_get_properties), true},
      {"zeInitDrivers", slot(api.init_drivers), false},
      {"zeDriverGetExtensionProperties", slot(api.driver_get_extension_properties), false},
      {"zeContextCreate", slot(api.context_create), false},
      {"zeMemAllocHost", slot(api.mem_alloc_host), false},
      {"zeMemFree", slot(api.mem_free), false},
      {"zeMemGetAllocProperties", slot(api.mem_get_alloc_properties), false},
      {"zeMemGetAddressRange", slot(api.mem_get_address_range), false},
      {"zelLoaderTranslateHandle", slot(api.translate_handle), false},
      {"zelLoaderGetVersions", slot(api.get_versions), false},
      {"zelCheckIsLoaderInTearDown", slot(api.in_tear_down), false},
  };
  return resolve(library, symbols, why);
}

// Initialises the GPU drivers and lists them. After a failure nothing more may be called: with loader 1.8 the next call
// goes through a table of a driver that is unloaded again. Only where drivers may be older than zeInitDrivers is zeInit
// tried: loader 1.32 says "unsupported" of them, 1.20 "uninitialized", as both do where there is no driver.
bool list_drivers(const Api &api, ze::DriverHandle (&drivers)[kMaxDrivers], uint32_t &count, Text &why) noexcept {
  if (api.init_drivers) {
    ze::InitDriverTypeDesc gpus{ze::kStypeInitDriverTypeDesc, nullptr, ze::kDriverTypeGpu};
    count = kMaxDrivers;
    const ze::Result result = api.init_drivers(&count, drivers, &gpus);
    if (result == ze::kSuccess) return true;
    if (result != ze::kUnsupportedFeature && result != ze::kUninitialized)
      return answered(why, "zeInitDrivers", result), false;
  }
  if (const ze::Result result = api.init(ze::kInitGpuOnly)) return answered(why, "zeInit", result), false;
  count = kMaxDrivers;
  if (const ze::Result result = api.driver_get(&count, drivers)) return answered(why, "zeDriverGet", result), false;
  return true;
}

struct Gpus {
  uint32_t count = 0;
  uint64_t max_alloc = UINT64_MAX;  // the smallest limit of one allocation
};

Gpus find_gpus(const Api &api, ze::DriverHandle driver, Text &why) noexcept {
  Gpus gpus;
  ze::DeviceHandle devices[kMaxDevices] = {};
  uint32_t count = kMaxDevices;
  if (const ze::Result result = api.device_get(driver, &count, devices)) return answered(why, "zeDeviceGet", result), gpus;
  ze::Result failed = ze::kSuccess;
  for (uint32_t i = 0; i < std::min(count, kMaxDevices) && devices[i]; ++i) {
    ze::DeviceProperties properties{};
    properties.stype = ze::kStypeDeviceProperties;
    if (const ze::Result result = api.device_get_properties(devices[i], &properties)) failed = result;
    else if (properties.type == ze::kDeviceTypeGpu) {
      ++gpus.count;
      gpus.max_alloc = std::min(gpus.max_alloc, properties.max_mem_alloc_size);
    }
  }
  if (gpus.count) return gpus;
  if (failed) answered(why, "zeDeviceGetProperties", failed);
  else why.add("no GPU device");
  return gpus;
}

// Null where the driver has none. Some answer success and leave the pointer as it was.
template <class Function>
ze::Result find_function(const Api &api, ze::DriverHandle driver, const char *name, Function &function) noexcept {
  void *address = nullptr;
  const ze::Result result = api.driver_get_extension_function_address(driver, name, &address);
  function = result == ze::kSuccess ? reinterpret_cast<Function>(address) : nullptr;
  return result;
}

bool find_imports(const Api &api, ze::DriverHandle handle, Driver &driver, Text &why) noexcept {
  const char *missing = kImport;
  ze::Result result = find_function(api, handle, kImport, driver.import_pointer);
  if (driver.import_pointer) result = find_function(api, handle, missing = kRelease, driver.release_pointer);
  if (!driver.import_pointer || !driver.release_pointer) {
    why.add("no %s: ", missing);
    answered(why, "zeDriverGetExtensionFunctionAddress", result);
    return false;
  }
  find_function(api, handle, kBaseAddress, driver.base_address);
  return true;
}

bool advertises_memmap(const Api &api, ze::DriverHandle handle) {
  uint32_t count = 0;
  if (api.driver_get_extension_properties(handle, &count, nullptr) != ze::kSuccess) return false;
  std::vector<ze::DriverExtensionProperties> extensions(count);
  if (api.driver_get_extension_properties(handle, &count, extensions.data()) != ze::kSuccess) return false;
  extensions.resize(std::min<size_t>(count, extensions.size()));
  return std::any_of(extensions.begin(), extensions.end(), [](const ze::DriverExtensionProperties &e) {
    return e.version == ze::kMemmapVersion && std::strncmp(e.name, ze::kMemmapExtension, sizeof(e.name)) == 0;
  });
}

// The string is needed: a driver without the extension ignores the request and answers with memory of its own.
bool open_memmap(const Api &api, ze::DriverHandle handle, Driver &driver, Text &why) {
  if (!api.driver_get_extension_properties || !api.context_create || !api.mem_alloc_host || !api.mem_free ||
      !api.mem_get_alloc_properties || !api.mem_get_address_range || !advertises_memmap(api, handle))
    return why.add("no %s", ze::kMemmapExtension), false;
  const ze::ContextDesc desc{ze::kStypeContextDesc, nullptr, 0};
  if (const ze::Result result = api.context_create(handle, &desc, &driver.context)) {
    driver.context = nullptr;
    return answered(why, "zeContextCreate", result), false;
  }
  return true;
}

bool own_handle(const Api &api, ze::DriverHandle handle, ze::OwnDriverHandle &own, Text &why) noexcept {
  void *translated = handle;
  if (api.translate_handle)
    if (const ze::Result result = api.translate_handle(ze::kHandleDriver, handle, &translated))
      return answered(why, "zelLoaderTranslateHandle", result), false;
  own = static_cast<ze::OwnDriverHandle>(translated);
  return true;
}

// Whether the driver can pin, and how.
bool open_driver(const Look &look, const Api &api, ze::DriverHandle handle, Driver &driver, Text &why) {
  if (look.config.ze_memmap) {
    Text no_memmap;
    if (open_memmap(api, handle, driver, no_memmap)) return true;
    look.warning.add("%sthe memmap extension is asked for, but a Level Zero driver cannot: %s; imports are used",
                     look.warning.empty() ? "" : "; ", no_memmap.c_str());
  }
  return own_handle(api, handle, driver.own, why) && find_imports(api, handle, driver, why);
}

uint32_t loader_version(const Api &api) {
  size_t count = 0;
  if (!api.get_versions || api.get_versions(&count, nullptr) != ze::kSuccess) return 0;
  std::vector<ze::ComponentVersion> versions(count);
  if (api.get_versions(&count, versions.data()) != ze::kSuccess) return 0;
  for (const ze::ComponentVersion &v : versions)
    if (std::strncmp(v.name, "loader", sizeof(v.name)) == 0)
      return static_cast<uint32_t>(v.major) << 24 | static_cast<uint32_t>(v.minor) << 16 | static_cast<uint32_t>(v.patch);
  return 0;
}

uint32_t driver_version(const Api &api, ze::DriverHandle handle) noexcept {
  ze::DriverProperties properties{};
  properties.stype = ze::kStypeDriverProperties;
  return api.driver_get_properties(handle, &properties) == ze::kSuccess ? properties.driver_version : 0;
}

// Takes this loader with those of its drivers that can pin for a GPU.
bool take(Look &look, const Library &library, Text &why) {
  Runtime found{};
  if (!resolve_api(library, found.api, why)) return false;
  why.add("%s: ", library.file.c_str());
  ze::DriverHandle handles[kMaxDrivers] = {};
  uint32_t count = 0;
  if (!list_drivers(found.api, handles, count, why)) return false;
  hp_backend_info info = look.info;
  info.device_count = 0;
  bool all_memmap = true;
  uint64_t max_segment = UINT64_MAX;
  for (uint32_t i = 0; i < std::min(count, kMaxDrivers) && handles[i]; ++i) {
    Driver &driver = found.drivers[found.count];
    driver = {};
    why.add("%sdriver %u: ", i ? ", " : "", i);
    const Gpus gpus = find_gpus(found.api, handles[i], why);
    if (!gpus.count || !open_driver(look, found.api, handles[i], driver, why)) continue;
    if (!found.count++) info.driver_version = driver_version(found.api, handles[i]);
    info.device_count += static_cast<int32_t>(gpus.count);
    if (driver.context) max_segment = std::min(max_segment, gpus.max_alloc);
    else all_memmap = false;
  }
  if (!count) why.add("no GPU driver");
  if (!found.count) return false;
  found.host_address = all_memmap;
  info.capabilities = all_memmap ? HP_CAP_HOST_ADDRESS | HP_CAP_DEVICE_POINTER : 0;
  info.max_segment = max_segment == UINT64_MAX ? 0 : max_segment;  // imports have no limit
  info.runtime_version = loader_version(found.api);
  info.runtime_file = keep_text(library.file.c_str());
  look.info = info;
  g = found;
  return true;
}

std::vector<Library> candidates(Look &look, Text &why) {
  if (look.stage == Stage::loaded) return loaded_copies(kLoaderName);
  const char *file = look.stage == Stage::named ? look.config.ze_loader : kSonames[0];
  if (!file) return {};
  if (look.stage == Stage::open && !look.forced && !any_exists(kDeviceNodes)) {
    why.add("no Intel GPU device node (%s)", kDeviceNodes[0]);
    return {};
  }
  Library library = open_library(file, why);
  if (!library.handle) return {};
  return {std::move(library)};
}

void append(Text &reason, const Text &clause) noexcept {
  if (!clause.empty()) reason.add("%s%s", reason.empty() ? "" : "; ", clause.c_str());
}

bool load(Look &look) {
  Text why;
  const auto libraries = candidates(look, why);
  append(look.reason, why);
  for (const Library &library : libraries) {
    if (std::find(look.asked.begin(), look.asked.end(), library.handle) != look.asked.end()) continue;
    look.asked.reserve(look.asked.size() + 1);
    why.clear();
    const bool taken = take(look, library, why);
    look.asked.push_back(library.handle);  // not before: a look that ran out of memory is no answer
    if (taken) return true;
    append(look.reason, why);
  }
  return false;
}

// ---- Ranges that are not given back yet

// A range that some drivers hold and others do not: a roll-back or a release that failed half-way. Releasing it once more
// where it is released already could end an import that somebody else has made there since.
struct Debt {
  uint64_t start;
  uint64_t end;
  uint32_t drivers;  // one bit for each that is to release it
  uint32_t freed;    // of these: those that said they did, and have it mapped nevertheless
};

constinit std::mutex g_debts_mutex;  // never held in a vendor call
constinit Debt g_debts[64] = {};
constinit std::atomic<uint32_t> g_debt_count{0};

// Takes out a debt that overlaps the range.
bool take_debt(uint64_t start, uint64_t end, Debt &out) noexcept {
  if (g_debt_count.load() == 0) return false;
  const std::lock_guard lock(g_debts_mutex);
  for (Debt &d : g_debts) {
    if (!d.drivers || d.start >= end || start >= d.end) continue;
    out = d;
    d = {};
    --g_debt_count;
    return true;
  }
  return false;
}

bool keep_debt(const Debt &debt) noexcept {
  const std::lock_guard lock(g_debts_mutex);
  for (Debt &d : g_debts) {
    if (d.drivers) continue;
    d = debt;
    ++g_debt_count;
    return true;
  }
  return false;
}

// ---- Pinning

void *pointer(uint64_t address) noexcept { return reinterpret_cast<void *>(address); }

bool torn_down() noexcept { return g.api.in_tear_down && g.api.in_tear_down(); }
constexpr const char *kTearDown = "zelCheckIsLoaderInTearDown";

enum class Known : uint8_t { no, yes, cannot_tell };

Known known_allocation(const Driver &driver, uint64_t address, uint64_t &base) noexcept {
  ze::MemoryAllocationProperties properties{};
  properties.stype = ze::kStypeMemoryAllocationProperties;
  const ze::Result result = g.api.mem_get_alloc_properties(driver.context, pointer(address), &properties, nullptr);
  if (result != ze::kSuccess) return Known::cannot_tell;
  if (properties.type == ze::kMemoryTypeUnknown) return Known::no;
  void *found = nullptr;
  size_t size = 0;
  if (g.api.mem_get_address_range(driver.context, pointer(address), &found, &size) == ze::kSuccess)
    base = reinterpret_cast<uint64_t>(found);
  return Known::yes;
}

Known known_import(const Driver &driver, uint64_t address, uint64_t &base) noexcept {
  if (!driver.base_address) return Known::cannot_tell;
  void *found = nullptr;
  const ze::Result result = driver.base_address(driver.own, pointer(address), &found);
  if (result == ze::kInvalidArgument) return Known::no;
  if (result != ze::kSuccess) return Known::cannot_tell;
  base = reinterpret_cast<uint64_t>(found);
  return Known::yes;
}

// Does the driver know the byte at `address`? `base` is where the import or allocation around it begins.
Known known(const Driver &driver, uint64_t address, uint64_t &base) noexcept {
  base = address;
  return driver.context ? known_allocation(driver, address, base) : known_import(driver, address, base);
}

// Whether imports of others cover the range without a gap, followed from the last byte down. Many small ones are not
// worth the time: they count as a gap.
bool covered(const Driver &driver, uint64_t start, uint64_t end) noexcept {
  uint64_t at = end;
  for (int imports = 0; at > start && imports < 64; ++imports)
    if (known(driver, at - 1, at) != Known::yes) return false;
  return at <= start;
}

constexpr uint64_t kProbes = 15;  // besides the last byte

// What others have pinned in the range: nothing (none), all of it, or some.
Failure foreign_in(const Driver &driver, uint64_t start, uint64_t end) noexcept {
  const uint64_t step = std::max((end - start - 1) / kProbes + 1, page_size());
  uint64_t base = 0;
  bool any = known(driver, end - 1, base) == Known::yes;
  for (uint64_t at = start; !any && at < end - 1; at += step) any = known(driver, at, base) == Known::yes;
  if (!any) return Failure::none;
  return covered(driver, start, end) ? Failure::foreign : Failure::foreign_part;
}

// Before the drivers are asked, for two reasons: they would take some such ranges without a record, and what is pinned by
// somebody else is found without undoing anything.
Outcome find_foreign(uint64_t start, uint64_t end) noexcept {
  uint32_t whole = 0;
  Outcome found;
  for (uint32_t i = 0; i < g.count; ++i) {
    const Failure f = foreign_in(g.drivers[i], start, end);
    if (f == Failure::none) continue;
    whole += f == Failure::foreign;
    found = {Failure::foreign_part, 0, g.drivers[i].context ? "zeMemGetAllocProperties" : kBaseAddress};
  }
  // Of use to every device only if each driver has all of it.
  if (whole && whole == g.count) found.failure = Failure::foreign;
  return found;
}

Outcome import_range(const Driver &driver, uint64_t start, uint64_t len) noexcept {
  return pinned(driver.import_pointer(driver.own, pointer(start), len), kImport);
}

Outcome map_range(const Driver &driver, uint64_t start, uint64_t len, uint32_t flags) noexcept {
  // The driver does not look, and maps what is not a whole page too.
  if (start % page_size() || len % page_size()) return {Failure::invalid, 0, "zeMemAllocHost"};
  const ze::MemmapDesc memmap{ze::kStypeMemmapDesc, nullptr, pointer(start), len};
  const ze::HostMemAllocDesc desc{ze::kStypeHostMemAllocDesc, &memmap,
                                  flags & HP_REGISTER_READONLY ? ze::kHostMemReadOnly : 0};
  void *out = nullptr;
  const ze::Result result = g.api.mem_alloc_host(driver.context, &desc, len, 1, &out);
  if (result != ze::kSuccess || out == pointer(start)) return pinned(result, "zeMemAllocHost");
  g.api.mem_free(driver.context, out);  // fresh memory: the request was ignored
  return {Failure::unsupported, 0, "zeMemAllocHost"};
}

constexpr char kTooManyHeld[] = "Level Zero drivers hold more ranges than can be noted; start the process again";
// Through at least 26.31 Intel's driver may keep a freed range in a cache, still mapped, and hand it out as new memory.
constexpr char kKept[] = "the Level Zero driver keeps freed memory mapped and may hand it out as new; leave the memmap extension "
                         "off (HOSTPIN_ZE_MEMMAP=0), or use a driver without this defect";

Outcome unmap_range(const Driver &driver, uint64_t start, bool &freed) noexcept {
  if (!freed) {
    const ze::Result result = g.api.mem_free(driver.context, pointer(start));
    if (result != ze::kSuccess) return released(result, "zeMemFree");
  }
  uint64_t base = 0;
  freed = known(driver, start, base) != Known::no;
  if (!freed) return {Failure::none, 0, "zeMemFree"};
  return {Failure::other, 0, "zeMemFree", false, kKept};
}

Outcome release_range(const Driver &driver, uint64_t start, bool &freed) noexcept {
  if (driver.context) return unmap_range(driver, start, freed);
  return released(driver.release_pointer(driver.own, pointer(start)), kRelease);
}

// Releases in the drivers of `debt`, last first, each whether or not another fails. What fails stays noted. Of several
// outcomes the one is told that says most: a failure, then a pin that was gone.
Outcome release(const Debt &debt) noexcept {
  Debt left{debt.start, debt.end, 0, 0};
  Outcome told;
  for (uint32_t i = g.count; i-- > 0;) {
    const uint32_t bit = uint32_t{1} << i;
    if (!(debt.drivers & bit)) continue;
    bool freed = debt.freed & bit;
    const Outcome o = release_range(g.drivers[i], debt.start, freed);
    if (o.failure == Failure::none || (o.failure == Failure::gone && left.drivers)) continue;
    told = o;
    if (o.failure == Failure::gone) continue;
    left.drivers |= bit;
    if (freed) left.freed |= bit;
  }
  if (left.drivers && !keep_debt(left)) told.hint = kTooManyHeld;
  return told;
}

// Whether an import that the driver says it made begins and ends where it should. Somebody else's may lie around it, and
// then nothing was recorded and nothing is ours to release; or inside it, and then the bytes behind that one are lost.
enum class Made : uint8_t { whole, broken, nothing };

Made made(const Driver &driver, uint64_t start, uint64_t end) noexcept {
  uint64_t base = 0;
  const auto is_ours = [&](uint64_t address) {
    const Known k = known(driver, address, base);
    return k == Known::cannot_tell || (k == Known::yes && base == start);
  };
  if (driver.context || is_ours(end - 1)) return Made::whole;
  return is_ours(start) ? Made::broken : Made::nothing;
}

Outcome pin_in(const Driver &driver, uint64_t start, uint64_t len, uint32_t flags) noexcept {
  return driver.context ? map_range(driver, start, len, flags) : import_range(driver, start, len);
}

// Takes back what a pin that failed later has pinned. True when a driver will not give it back: then it stays noted, and
// unpin() of it tries again.
bool roll_back(uint32_t drivers, uint64_t start, uint64_t end) noexcept {
  if (!drivers) return false;
  const Outcome o = release({start, end, drivers, 0});
  return o.failure != Failure::none && o.failure != Failure::gone;
}

Outcome pin(uint64_t start, uint64_t len, uint32_t flags, Pinned &out) {
  const uint64_t end = start + len;
  if (end <= start) return {Failure::invalid, 0, ""};  // Intel's driver takes it, and can never release it
  if (torn_down()) return {Failure::device, 0, kTearDown};
  for (Debt debt; take_debt(start, end, debt);)
    if (const Outcome o = release(debt); o.failure != Failure::none && o.failure != Failure::gone) return o;
  if (const Outcome o = find_foreign(start, end); o.failure != Failure::none) return o;
  uint32_t done = 0;
  for (uint32_t i = 0; i < g.count; ++i) {
    const Driver &driver = g.drivers[i];
    Outcome o = pin_in(driver, start, len, flags);
    if (o.failure == Failure::none) {
      const Made m = made(driver, start, end);
      if (m != Made::nothing) done |= uint32_t{1} << i;
      if (m == Made::whole) continue;
      o = {Failure::foreign_part, 0, kBaseAddress};
    }
    o.held = roll_back(done, start, end);
    return o;
  }
  out.device = g.host_address ? start : 0;
  out.host_address = g.host_address;
  return {};
}

Outcome unpin(uint64_t start, uint64_t len) {
  if (torn_down()) return {Failure::gone, 0, kTearDown};
  Debt debt;
  if (!take_debt(start, start + len, debt)) debt = {start, start + len, g.all(), 0};
  return release(debt);
}

// Imports have an address of their own on the device, which no call tells.
Outcome device_pointer(uint64_t start, uint64_t &device) {
  if (!g.host_address) return {Failure::unsupported, 0, ""};
  device = start;
  return {};
}

}  // namespace

constinit const Backend kLevelZero = {HP_BACKEND_LEVEL_ZERO, "level_zero", load, pin, unpin, device_pointer, code_name};

}  // namespace hp
