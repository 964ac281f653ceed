// What the tests of registering share: the library's answers, memory, and a simulated driver that is as new for each test.
// Which runtime is simulated is told by the environment, see meson.build.
#pragma once
#include <dlfcn.h>
#include <hostpin.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "catch.h"
#include "hostpin-sim.h"

namespace test {

constexpr uint64_t kNoLimit = UINT64_MAX;
constexpr size_t kGiB = size_t{1} << 30;

inline size_t page() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

inline hp_stats stats() {
  hp_stats all{};
  all.struct_size = sizeof(all);
  REQUIRE(hp_get_stats(&all) == HP_OK);
  return all;
}

inline hp_backend_info backend() {
  hp_backend_info info{};
  info.struct_size = sizeof(info);
  REQUIRE(hp_get_backend(&info) == HP_OK);
  return info;
}

inline hp_region region(const void *ptr, size_t len, int32_t expected = HP_OK) {
  hp_region found{};
  found.struct_size = sizeof(found);
  REQUIRE(hp_query(ptr, len, &found) == expected);
  return found;
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

inline std::string hex(const void *ptr) {
  char text[32];
  snprintf(text, sizeof(text), "%p", ptr);
  return text;
}

// ---- Which runtime is simulated

inline bool is_hip() { return std::getenv("HOSTPIN_AMDHIP") != nullptr; }
inline bool is_driver_only() { return std::getenv("HOSTPIN_CUDA_DRIVER") != nullptr; }
inline int32_t vendor() { return is_hip() ? HPS_HIP : HPS_CUDA; }
inline const char *runtime_file() {
  for (const char *variable : {"HOSTPIN_CUDART", "HOSTPIN_CUDA_DRIVER", "HOSTPIN_AMDHIP"})
    if (const char *file = std::getenv(variable)) return file;
  return "";
}
inline const char *register_name() {
  return is_hip() ? "hipHostRegister" : is_driver_only() ? "cuMemHostRegister" : "cudaHostRegister";
}
inline const char *unregister_name() {
  return is_hip() ? "hipHostUnregister" : is_driver_only() ? "cuMemHostUnregister" : "cudaHostUnregister";
}
inline const char *device_pointer_function() {
  return is_hip() ? "hipHostGetDevicePointer" : is_driver_only() ? "cuMemHostGetDevicePointer_v2" : "cudaHostGetDevicePointer";
}

inline const char *exchange_function() {
  return is_hip()           ? "hipThreadExchangeStreamCaptureMode"
         : is_driver_only() ? "cuThreadExchangeStreamCaptureMode"
                            : "cudaThreadExchangeStreamCaptureMode";
}
inline const char *last_error_function() { return is_hip() ? "hipGetLastError" : "cudaGetLastError"; }

// A function of a simulated library, called as the application would call it.
template <class... A>
int vendor_call(const char *file, const char *name, A... arguments) {
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library);
  auto *function = reinterpret_cast<int (*)(A...)>(dlsym(library, name));
  REQUIRE(function);
  return function(arguments...);
}

// Runs `body` on a thread that has never made a vendor call, and hands on what Catch cannot see there.
template <class Body>
auto on_fresh_thread(Body body) {
  decltype(body()) result{};
  std::thread thread([&] { result = body(); });
  thread.join();
  return result;
}

// ---- Steering the simulated driver

inline void script(const std::string &text) { REQUIRE(hps_script(text.c_str()) == 0); }

// The next `count` calls to `what`, after `skip` ones that work, answer `code`.
inline void fail_next(const char *what, int code, uint64_t count = 1, uint64_t skip = 0) {
  const uint64_t first = hps_calls(what) + skip + 1;
  script("fail=" + std::string(what) + ":" + std::to_string(first) + "-" + std::to_string(first + count - 1) + ":" +
         std::to_string(code));
}

// Calls to vendor functions that pin or release.
inline uint64_t pin_calls() { return hps_calls("register") + hps_calls("unregister"); }

inline std::vector<hps_registration> pinned_by_driver() {
  std::vector<hps_registration> all(hps_registrations(nullptr, 0));
  hps_registrations(all.data(), all.size());
  return all;
}

// What reached the driver since the script "trace=1".
inline std::vector<hps_call> trace() {
  std::vector<hps_call> all(hps_trace(nullptr, 0));
  hps_trace(all.data(), all.size());
  return all;
}

inline bool is_register(const hps_call &call) {
  const std::string_view f = call.function;
  return f == "cudaHostRegister" || f == "cuMemHostRegister_v2" || f == "hipHostRegister";
}
inline bool is_unregister(const hps_call &call) {
  const std::string_view f = call.function;
  return f == "cudaHostUnregister" || f == "cuMemHostUnregister" || f == "hipHostUnregister";
}

template <class Wanted>
std::vector<hps_call> traced(Wanted wanted) {
  std::vector<hps_call> found;
  for (const hps_call &call : trace())
    if (wanted(call)) found.push_back(call);
  return found;
}

// A test starts with a driver as new and a library that has nothing registered. It has to end so as well: memory that
// stays pinned, or a release too many, is a failure of any test.
class Fresh {
public:
  explicit Fresh(const std::string &text = "") {
    reset();
    if (!text.empty()) script(text);
  }
  // Nothing pinned, no script, no contexts, no captures.
  static void renew_driver() {
    hps_reset();
    if (is_driver_only()) vendor_call(runtime_file(), "cuInit", 0u);
  }
  ~Fresh() {
    if (std::uncaught_exceptions() == 0) {
      CHECK(hps_live_registrations() == 0);
      CHECK(stats().registrations == 0);
      CHECK(stats().segments == 0);
      CHECK(stats().stuck_segments == 0);
      CHECK(stats().pinned_bytes == 0);
    }
    reset();
  }
  Fresh(const Fresh &) = delete;
  Fresh &operator=(const Fresh &) = delete;

private:
  static void reset() {
    backend();
    renew_driver();
    CHECK(hp_unregister_all(kNoLimit) == HP_OK);
    renew_driver();
  }
};

// ---- Memory

class Memory {
public:
  explicit Memory(size_t len, int protection = PROT_READ | PROT_WRITE)
      : len_(len), base_(mmap(nullptr, len, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    REQUIRE(base_ != MAP_FAILED);
  }
  ~Memory() { munmap(base_, len_); }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;

  void *at(size_t offset = 0) const { return static_cast<char *>(base_) + offset; }
  void *page_at(size_t number) const { return at(number * page()); }
  uint64_t address(size_t offset = 0) const { return reinterpret_cast<uintptr_t>(at(offset)); }
  size_t size() const { return len_; }

private:
  size_t len_;
  void *base_;
};

// ---- Log lines

class Log {
public:
  struct Line {
    int32_t level;
    std::string text;
  };
  Log() { hp_set_log_callback(&take, this); }
  ~Log() { hp_set_log_callback(nullptr, nullptr); }
  Log(const Log &) = delete;
  Log &operator=(const Log &) = delete;

  std::vector<Line> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  size_t count(std::string_view part) const {
    size_t n = 0;
    for (const Line &line : lines()) n += contains(line.text, part);
    return n;
  }

private:
  static void take(int32_t level, const char *text, void *user) {
    auto *log = static_cast<Log *>(user);
    const std::lock_guard lock(log->mutex_);
    log->lines_.push_back({level, text});
  }
  mutable std::mutex mutex_;
  std::vector<Line> lines_;
};

}  // namespace test
