// A libcudart.so.12 without a device whose cudaHostRegister really pins: as fixed buffers of an io_uring, which the
// kernel pins the way that drivers have it done (pin_user_pages, FOLL_LONGTERM), so that a registration costs here what
// it costs the kernel with a driver. Where io_uring is not allowed it locks the pages with mlock.
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

enum : int { kSuccess = 0, kInvalidValue = 1, kMemoryAllocation = 2, kAlreadyRegistered = 712, kNotRegistered = 713 };

constexpr uint64_t kLongestBuffer = uint64_t{1} << 30;  // io_uring takes no longer one

struct Pages {
  uint64_t start;
  uint64_t size;
};

struct Pinned {
  Pages pages;
  int ring;  // -1: locked with mlock
};

std::mutex g_mutex;
std::map<void *, Pinned> g_pinned;
uint64_t g_longest_ns = 0;

Pages pages_of(void *p, size_t bytes) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uint64_t>(p);
  const uint64_t start = first / page * page;
  return {start, (first + bytes + page - 1) / page * page - start};
}

int make_ring() {
  io_uring_params params = {};
  return static_cast<int>(syscall(SYS_io_uring_setup, 1, &params));
}

long register_with(int ring, unsigned what, void *argument, unsigned size) {
  return syscall(SYS_io_uring_register, ring, what, argument, size);
}

bool io_uring_is_allowed() {
  static const bool allowed = [] {
    const int ring = make_ring();
    if (ring >= 0) close(ring);
    return ring >= 0;
  }();
  return allowed;
}

// One buffer after the other, so that each is a pin of its own.
bool pin_buffers(int ring, const Pages &pages) {
  io_uring_rsrc_register table = {};
  table.nr = static_cast<uint32_t>((pages.size + kLongestBuffer - 1) / kLongestBuffer);
  table.flags = IORING_RSRC_REGISTER_SPARSE;
  if (register_with(ring, IORING_REGISTER_BUFFERS2, &table, sizeof table) != 0) return false;
  for (uint32_t i = 0; i < table.nr; ++i) {
    const uint64_t offset = i * kLongestBuffer;
    iovec buffer = {reinterpret_cast<void *>(pages.start + offset), std::min(kLongestBuffer, pages.size - offset)};
    uint64_t tag = 0;
    io_uring_rsrc_update2 update = {};
    update.offset = i;
    update.data = reinterpret_cast<uint64_t>(&buffer);
    update.tags = reinterpret_cast<uint64_t>(&tag);
    update.nr = 1;
    if (register_with(ring, IORING_REGISTER_BUFFERS_UPDATE, &update, sizeof update) != 1) return false;
  }
  return true;
}

// Closing alone would release the pages at some later time.
void release(const Pinned &p) {
  if (p.ring < 0) {
    munlock(reinterpret_cast<void *>(p.pages.start), p.pages.size);
    return;
  }
  register_with(p.ring, IORING_UNREGISTER_BUFFERS, nullptr, 0);
  close(p.ring);
}

int pin(Pinned &p) {
  if (!io_uring_is_allowed())
    return mlock(reinterpret_cast<void *>(p.pages.start), p.pages.size) == 0 ? kSuccess : kMemoryAllocation;
  p.ring = make_ring();
  if (p.ring < 0) return kMemoryAllocation;
  if (pin_buffers(p.ring, p.pages)) return kSuccess;
  const int code = errno == ENOMEM ? kMemoryAllocation : kInvalidValue;
  release(p);
  return code;
}

}  // namespace

struct PointerAttributes {
  int type;
  int device;
  void *device_pointer;
  void *host_pointer;
};

EXPORT int cudaHostRegister(void *p, size_t bytes, unsigned) {
  {
    const std::lock_guard lock(g_mutex);
    if (g_pinned.count(p)) return kAlreadyRegistered;
  }
  Pinned pinned = {pages_of(p, bytes), -1};
  const auto begin = std::chrono::steady_clock::now();
  const int code = pin(pinned);
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begin;
  const std::lock_guard lock(g_mutex);
  g_longest_ns = std::max(g_longest_ns, static_cast<uint64_t>(took.count()));
  if (code == kSuccess) g_pinned[p] = pinned;
  return code;
}

EXPORT int cudaHostUnregister(void *p) {
  Pinned pinned;
  {
    const std::lock_guard lock(g_mutex);
    const auto found = g_pinned.find(p);
    if (found == g_pinned.end()) return kNotRegistered;
    pinned = found->second;
    g_pinned.erase(found);
  }
  release(pinned);
  return kSuccess;
}

EXPORT int cudaHostGetDevicePointer(void **out, void *p, unsigned) {
  *out = p;
  return kSuccess;
}
EXPORT int cudaGetLastError() { return kSuccess; }
EXPORT int cudaPeekAtLastError() { return kSuccess; }
EXPORT int cudaGetDeviceCount(int *out) {
  *out = 1;
  return kSuccess;
}
EXPORT int cudaPointerGetAttributes(PointerAttributes *out, const void *) {
  *out = {};
  return kSuccess;
}
EXPORT const char *cudaGetErrorName(int code) {
  switch (code) {
    case kSuccess: return "cudaSuccess";
    case kInvalidValue: return "cudaErrorInvalidValue";
    case kMemoryAllocation: return "cudaErrorMemoryAllocation";
    case kAlreadyRegistered: return "cudaErrorHostMemoryAlreadyRegistered";
    case kNotRegistered: return "cudaErrorHostMemoryNotRegistered";
    default: return "unrecognized error code";
  }
}
EXPORT int cudaRuntimeGetVersion(int *out) {
  *out = 12000;
  return kSuccess;
}
EXPORT int cudaDriverGetVersion(int *out) {
  *out = 12000;
  return kSuccess;
}
EXPORT int cudaGetDevice(int *out) {
  *out = 0;
  return kSuccess;
}
EXPORT int cudaSetDevice(int) { return 0; }
EXPORT int cudaDeviceGetAttribute(int *out, int, int) {
  *out = 1;
  return kSuccess;
}

// ---- For the benchmarks alone

EXPORT const char *pinning_method() { return io_uring_is_allowed() ? "io_uring" : "mlock"; }

// Of the calls since it was asked last.
EXPORT uint64_t pinning_longest_call_ns() {
  const std::lock_guard lock(g_mutex);
  const uint64_t longest = g_longest_ns;
  g_longest_ns = 0;
  return longest;
}
