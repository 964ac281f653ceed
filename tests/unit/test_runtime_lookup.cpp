// Which files are taken for a runtime, in which order they are asked for, and what a runtime must have. The dynamic loader
// is this program's own.
#include <hostpin.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "backend.h"
#include "catch.h"
#include "config.h"
#include "fake_cudart.h"
#include "runtime.h"

using namespace hp;

namespace {

constexpr const char *kSonames[] = {"libcudart.so.13", "libcudart.so.12"};
constexpr RuntimeName kCudart = {"libcudart", true, kSonames};
constexpr RuntimeName kAmdhip = {"libamdhip64", false, kSonames};

// The libraries of a made-up process.
struct World {
  std::vector<std::string> loaded;    // files, in load order
  std::vector<std::string> openable;  // names that can be opened
  std::vector<std::string> opened;    // what was asked for, in order
  std::vector<int> modes;
  std::vector<std::string> handles;   // a handle is an index of these, plus one
} world;

void *handle_of(const std::string &file) {
  const auto at = std::find(world.handles.begin(), world.handles.end(), file);
  const auto index = at - world.handles.begin();
  if (at == world.handles.end()) world.handles.push_back(file);
  return reinterpret_cast<void *>(index + 1);
}

void *open_fake(const char *file, int mode) {
  const auto has = [&](const std::vector<std::string> &v) { return std::find(v.begin(), v.end(), file) != v.end(); };
  if (!(mode & RTLD_NOLOAD)) {
    world.opened.push_back(file);
    world.modes.push_back(mode);
  }
  return has(world.loaded) || (!(mode & RTLD_NOLOAD) && has(world.openable)) ? handle_of(file) : nullptr;
}

int iterate_fake(int (*visit)(dl_phdr_info *, size_t, void *), void *data) {
  for (const std::string &file : world.loaded) {
    dl_phdr_info info{};
    info.dlpi_name = file.c_str();
    info.dlpi_adds = world.loaded.size();
    if (const int stop = visit(&info, sizeof(info), data)) return stop;
  }
  return 0;
}

struct FakeLoader {
  FakeLoader() : before(loader) {
    world = {};
    fake::runtime = {};
    loader = {open_fake, fake::symbol, iterate_fake};
  }
  ~FakeLoader() { loader = before; }
  FakeLoader(const FakeLoader &) = delete;
  FakeLoader &operator=(const FakeLoader &) = delete;
  const Loader before;
};

// One look of the CUDA backend.
struct Asked {
  explicit Asked(Stage stage_, bool forced_ = true) : stage(stage_), forced(forced_) {}
  bool look(std::vector<void *> &seen) {
    Look l{config, stage, forced, seen, info, reason, warning};
    return kCuda.load(l);
  }
  bool look() {
    std::vector<void *> seen;
    return look(seen);
  }
  bool says(const char *part) const { return std::strstr(reason.c_str(), part) != nullptr; }
  Config config;
  Stage stage;
  bool forced;
  hp_backend_info info{};
  Text reason;
  Text warning;
};

}  // namespace

TEST_CASE("names of runtimes") {
  struct Name {
    const char *file;
    bool cudart, amdhip;
  };
  const Name names[] = {
      {"libcudart.so", true, false},
      {"libcudart.so.13", true, false},
      {"libcudart.so.12", true, false},
      {"libcudart.so.11.0", true, false},
      {"libcudart.so.12.4.127", true, false},
      {"libcudart-1a2b3c4d.so.12", true, false},
      {"libcudart-d0da41ae.so.11.0", true, false},
      {"libcudart.e409450e.so.12", true, false},
      {"libcudart-.so.12", false, false},
      {"libcudart-xyz.so.12", false, false},
      {"libcudart_stub.so", false, false},
      {"libcudart_stub.so.12", false, false},
      {"libcudart_static.a", false, false},
      {"libcudartemu.so", false, false},
      {"libcudart.so.12.bak", false, false},
      {"libcudart.so.x", false, false},
      {"libcudart.sock", false, false},
      {"libcudart", false, false},
      {"mylibcudart.so.12", false, false},
      {"libcudart12.so", false, false},
      {"", false, false},
      {"libamdhip64.so.6", false, true},
      {"libamdhip64.so", false, true},
      {"libamdhip64.so.6.4.43484", false, true},
      {"libamdhip64-1a2b3c4d.so.6", false, false},
      {"libamdhip64_compat.so.6", false, false},
  };
  for (const Name &n : names) {
    CAPTURE(n.file);
    CHECK(is_runtime(n.file, kCudart) == n.cudart);
    CHECK(is_runtime(n.file, kAmdhip) == n.amdhip);
  }
}

TEST_CASE("copies that are loaded, by the name of the file alone") {
  const FakeLoader with;
  world.loaded = {"", "/lib/libc.so.6", "/a/libcudart.so.12/plugin.so", "/b/libcudart_stub.so", "/wheel/libcudart-1a2b3c4d.so.12",
                  "/lib/libcudart.so.13"};
  const auto found = loaded_copies(kCudart);
  REQUIRE(found.size() == 2);
  CHECK(found[0].file == "/wheel/libcudart-1a2b3c4d.so.12");
  CHECK(found[1].file == "/lib/libcudart.so.13");
  CHECK(world.opened.empty());  // nothing is loaded for it
}

TEST_CASE("a copy that is loaded is taken, the first one first") {
  const FakeLoader with;
  world.loaded = {"/a/libcudart.so.12", "/b/libcudart.so.13"};
  Asked asked(Stage::loaded);
  CHECK(asked.look());
  CHECK(asked.info.runtime_file == std::string("/a/libcudart.so.12"));
  CHECK(asked.info.runtime_version == 12040);
  CHECK(asked.info.driver_version == 13000);
  CHECK(asked.info.device_count == 1);
  CHECK(asked.info.capabilities == (HP_CAP_DEVICE_POINTER | HP_CAP_HOST_ADDRESS | HP_CAP_READ_ONLY));
  CHECK(world.opened.empty());
}

TEST_CASE("names are tried newest first, and never one without a version") {
  const FakeLoader with;
  Asked asked(Stage::open);
  CHECK_FALSE(asked.look());
  CHECK(world.opened == std::vector<std::string>{"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcuda.so.1"});
  for (int mode : world.modes) {
    CHECK((mode & RTLD_GLOBAL) == 0);
    CHECK((mode & RTLD_NODELETE));
  }
  CHECK(asked.says("libcudart.so.13"));
  CHECK(asked.says("libcuda.so.1"));
}

TEST_CASE("the newest that can be opened is taken") {
  const FakeLoader with;
  world.openable = {"libcudart.so.12", "libcudart.so.11.0"};
  Asked asked(Stage::open);
  CHECK(asked.look());
  CHECK(asked.info.runtime_file == std::string("libcudart.so.12"));
}

TEST_CASE("the file that the configuration names is the only one tried at that stage") {
  const FakeLoader with;
  Asked asked(Stage::named);
  SECTION("none is named") { CHECK_FALSE(asked.look()); }
  SECTION("it is not there") {
    asked.config.cudart = "/nowhere/libcudart.so.12";
    CHECK_FALSE(asked.look());
    CHECK(world.opened == std::vector<std::string>{"/nowhere/libcudart.so.12"});
    CHECK_FALSE(asked.reason.empty());
  }
  SECTION("it is there, whatever its name") {
    asked.config.cudart = "/somewhere/my-runtime";
    world.openable = {asked.config.cudart};
    CHECK(asked.look());
    CHECK(asked.info.runtime_file == std::string("/somewhere/my-runtime"));
  }
}

TEST_CASE("a runtime that lacks a function is passed over, by name") {
  const FakeLoader with;
  for (const auto &symbol : fake::kSymbols) {
    if (std::strcmp(symbol.name, "cudaThreadExchangeStreamCaptureMode") == 0) continue;
    CAPTURE(symbol.name);
    fake::runtime = {};
    fake::runtime.missing = symbol.name;
    world.loaded = {"/half/libcudart.so.12"};
    Asked asked(Stage::loaded);
    CHECK_FALSE(asked.look());
    CHECK(asked.says(symbol.name));
    CHECK(asked.says("/half/libcudart.so.12"));
    CHECK(fake::runtime.count_calls == 0);
  }
}

TEST_CASE("the next copy is asked when one will not do") {
  const FakeLoader with;
  world.loaded = {"/a/libcudart.so.12", "/b/libcudart.so.12"};
  fake::runtime.count_code = 35;
  std::vector<void *> seen;
  Asked asked(Stage::loaded);
  CHECK_FALSE(asked.look(seen));
  CHECK(fake::runtime.count_calls == 2);
  CHECK(asked.says("/a/libcudart.so.12"));
  CHECK(asked.says("/b/libcudart.so.12"));
  CHECK(asked.says("35 fakeError"));
  CHECK(fake::runtime.last_error == 0);
  // And never again, since their answer does not change and may be dear.
  CHECK_FALSE(asked.look(seen));
  CHECK(fake::runtime.count_calls == 2);
  // A new one is.
  fake::runtime.count_code = 0;
  world.loaded.push_back("/c/libcudart.so.13");
  CHECK(asked.look(seen));
  CHECK(asked.info.runtime_file == std::string("/c/libcudart.so.13"));
}

TEST_CASE("runtimes before CUDA 11, whose codes mean other things, are refused") {
  const FakeLoader with;
  world.loaded = {"/old/libcudart.so.10.2"};
  for (int version : {10020, 10999, 0}) {
    fake::runtime.version = version;
    Asked asked(Stage::loaded);
    CHECK_FALSE(asked.look());
    CHECK(asked.says(std::to_string(version).c_str()));
  }
  fake::runtime.version = 11000;
  CHECK(Asked(Stage::loaded).look());
}

TEST_CASE("a runtime with no device is passed over") {
  const FakeLoader with;
  world.loaded = {"/a/libcudart.so.12"};
  fake::runtime.devices = 0;
  Asked asked(Stage::loaded);
  CHECK_FALSE(asked.look());
  CHECK(asked.says("0 device"));
}

TEST_CASE("without the function for it the capture mode is left alone") {
  const FakeLoader with;
  world.loaded = {"/a/libcudart.so.12"};
  const bool has = GENERATE(true, false);
  if (!has) fake::runtime.missing = "cudaThreadExchangeStreamCaptureMode";
  REQUIRE(Asked(Stage::loaded).look());
  Pinned pinned;
  fake::runtime.capturing = true;
  const Outcome outcome = kCuda.pin(0x10000, 0x1000, 0, pinned);
  CHECK(outcome.failure == (has ? Failure::none : Failure::capture));
  CHECK(outcome.native == (has ? 0 : 900));
  CHECK(fake::runtime.capture_mode == 0);
  CHECK(fake::runtime.last_error == 0);
  CHECK(fake::pinned() == (has ? 1 : 0));
}

TEST_CASE("what a file lacks, and what the loader says of it, is in words") {
  Text why;
  const Library library = open_library("/nowhere/libcudart.so.12", why);
  CHECK(library.handle == nullptr);
  CHECK(std::strstr(why.c_str(), "/nowhere/libcudart.so.12"));
}

TEST_CASE("the count of loaded libraries grows with each one") {
  const FakeLoader with;
  world.loaded = {"/a/libx.so"};
  const auto before = libraries_loaded();
  world.loaded.push_back("/a/liby.so");
  CHECK(libraries_loaded() > before);
}

// ---- Programs with more rights than their caller

TEST_CASE("child: the environment is not heard", "[.]") {
  REQUIRE(getegid() != getgid());
  REQUIRE(std::getenv("HOSTPIN_CUDART"));
  const Config config = make_config();
  for (const char *file : {config.cudart, config.cuda_driver, config.amdhip, config.ze_loader}) CHECK(file == nullptr);
  CHECK(config.backend == HP_BACKEND_AUTO);
  CHECK(config.max_segment == 0);
  CHECK(config.budget_bytes == 0);
}

TEST_CASE("a program with more rights than its caller loads no file that the environment names") {
  namespace fs = std::filesystem;
  const std::string self = fs::read_symlink("/proc/self/exe");
  const std::string program = self + "-setgid";
  const std::string command = "HOSTPIN_CUDART=/tmp/evil.so HOSTPIN_CUDA_DRIVER=/tmp/evil.so HOSTPIN_AMDHIP=/tmp/evil.so "
                              "HOSTPIN_ZE_LOADER=/tmp/evil.so HOSTPIN_BACKEND=cuda HOSTPIN_MAX_SEGMENT=1M HOSTPIN_BUDGET=1G '" +
                              program + "' 'child: the environment is not heard' | grep -q 'in 1 test case'";
  if (geteuid() != 0) return;  // only root can make such a program
  fs::copy_file(self, program, fs::copy_options::overwrite_existing);
  REQUIRE(chown(program.c_str(), 0, 65534) == 0);
  REQUIRE(chmod(program.c_str(), 02755) == 0);
  CHECK(std::system(command.c_str()) == 0);
  fs::remove(program);
}
