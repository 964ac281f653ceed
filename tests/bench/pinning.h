// For benchmarks of registering: the runtime that pins (pinning_cudart.cpp), memory to pin, and numbers.
#pragma once
#include <dlfcn.h>
#include <hostpin.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace bench {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMiB = uint64_t{1} << 20;

[[noreturn]] inline void fail(const std::string &what) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, what.c_str());
  std::exit(1);
}

template <class Work>
double milliseconds(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// By processor time of all threads, which other load on the machine lengthens less.
template <class Work>
double cpu_milliseconds(Work work) {
  const auto now = [] {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
  };
  const double begin = now();
  work();
  return now() - begin;
}

inline double rounded(double x) { return std::round(x * 1000) / 1000; }

inline double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return (v[(v.size() - 1) / 2] + v[v.size() / 2]) / 2;
}

// How many times b each of a took, of what was measured side by side: what slows both leaves it as it is.
inline double median_ratio(const std::vector<double> &a, const std::vector<double> &b) {
  std::vector<double> ratios(a.size());
  std::transform(a.begin(), a.end(), b.begin(), ratios.begin(), std::divides<>());
  return rounded(median(ratios));
}

inline Json summary(const std::vector<double> &ms) {
  return {{"median_ms", rounded(median(ms))}, {"best_ms", rounded(*std::min_element(ms.begin(), ms.end()))}};
}

// The calls as a program makes them that has no library. The library itself is told to use the same file.
class Runtime {
public:
  explicit Runtime(const char *file) {
    setenv("HOSTPIN_CUDART", file, 1);
    setenv("HOSTPIN_BACKEND", "cuda", 1);
    handle_ = dlopen(file, RTLD_NOW);
    if (!handle_) fail(dlerror());
    find("cudaHostRegister", host_register_);
    find("cudaHostUnregister", host_unregister_);
    find("pinning_method", method_);
    find("pinning_longest_call_ns", longest_call_ns_);
  }
  void pin(void *p, uint64_t bytes) const {
    const int code = host_register_(p, bytes, 1);
    if (code) fail("cudaHostRegister: " + std::to_string(code) + " (is the limit of locked memory, ulimit -l, high enough?)");
  }
  void unpin(void *p) const {
    if (host_unregister_(p)) fail("cudaHostUnregister");
  }
  const char *method() const { return method_(); }
  double longest_call_ms() const { return static_cast<double>(longest_call_ns_()) / 1e6; }

private:
  template <class Function>
  void find(const char *name, Function *&out) {
    out = reinterpret_cast<Function *>(dlsym(handle_, name));
    if (!out) fail(dlerror());
  }
  void *handle_;
  int (*host_register_)(void *, size_t, unsigned);
  int (*host_unregister_)(void *);
  const char *(*method_)();
  uint64_t (*longest_call_ns_)();
};

// Memory without pages yet, at a multiple of 2 MiB: private, or of a memory object that a process would share.
class Memory {
public:
  Memory(uint64_t bytes, bool shared) : bytes_(bytes), whole_(bytes + 2 * kMiB) {
    room_ = map(nullptr, whole_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    const uint64_t aligned = (reinterpret_cast<uint64_t>(room_) + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
    const int fd = shared ? memfd_create("bench", MFD_CLOEXEC) : -1;
    if (shared && (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0)) fail("memfd_create");
    address_ = map(reinterpret_cast<void *>(aligned), bytes, PROT_READ | PROT_WRITE,
                   (shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | MAP_FIXED, fd);
    if (fd >= 0) close(fd);
  }
  ~Memory() { munmap(room_, whole_); }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;

  void *address() const { return address_; }
  void small_pages() const { madvise(address_, bytes_, MADV_NOHUGEPAGE); }
  void make_present() const {
    if (madvise(address_, bytes_, MADV_POPULATE_WRITE) == 0) return;
    for (uint64_t at = 0; at < bytes_; at += 4096) static_cast<volatile char *>(address_)[at] = 0;
  }

private:
  static void *map(void *at, uint64_t bytes, int access, int flags, int fd) {
    void *p = mmap(at, bytes, access, flags, fd, 0);
    if (p == MAP_FAILED) fail("mmap of " + std::to_string(bytes / kMiB) + " MiB");
    return p;
  }
  uint64_t bytes_, whole_;
  void *room_;
  void *address_;
};

inline uint64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string name, line; file >> name; std::getline(file, line)) {
    uint64_t kib = 0;
    if (name == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return UINT64_MAX;
}

// "always [madvise] never" -> "madvise"
inline std::string chosen(const std::string &path) {
  std::string text;
  std::getline(std::ifstream(path), text);
  const size_t open = text.find('['), end = text.find(']');
  return open == text.npos || end == text.npos ? "" : text.substr(open + 1, end - open - 1);
}

inline Json machine(const Runtime &runtime) {
  std::string kernel;
  std::getline(std::ifstream("/proc/sys/kernel/osrelease"), kernel);
  const std::string thp = "/sys/kernel/mm/transparent_hugepage/";
  return {{"cores", sysconf(_SC_NPROCESSORS_ONLN)}, {"kernel", kernel}, {"huge_pages", chosen(thp + "enabled")},
          {"shared_huge_pages", chosen(thp + "shmem_enabled")}, {"pins_with", runtime.method()}};
}

inline void pin_with_library(void *p, uint64_t bytes, uint32_t flags) {
  if (hp_register(p, bytes, flags | HP_REGISTER_REQUIRED) != HP_OK) fail(hp_last_error());
}
inline void unpin_with_library(void *p) {
  if (hp_unregister(p) != HP_OK) fail(hp_last_error());
}

}  // namespace bench
