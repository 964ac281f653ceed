// A CUDA runtime made of functions of the test program itself, put under the library by its loader's look-up. It allocates
// nothing, and symbols can be missing.
#pragma once
#include <dlfcn.h>

#include <array>
#include <cstring>
#include <string_view>

#include "runtime.h"

namespace fake {

struct Pin {
  const void *ptr;
  size_t len;
};

struct Runtime {
  std::array<Pin, 64> pins{};
  int version = 12040;
  int devices = 1;
  int count_code = 0;         // answer of the device count
  int release_code = 0;       // answer of a release, which then does nothing
  int register_code = 0;      // the same for a registration
  size_t largest = SIZE_MAX;  // one registration of more is an invalid value
  const char *missing = "";
  bool capturing = false;  // another thread is
  int capture_mode = 0;
  int count_calls = 0;
  int last_error = 0;
};
inline Runtime runtime;

inline int note(int code) {
  if (code) runtime.last_error = code;
  return code;
}

inline size_t pinned() {
  size_t n = 0;
  for (const Pin &p : runtime.pins) n += p.ptr != nullptr;
  return n;
}

inline int host_register(void *ptr, size_t len, unsigned) {
  if (runtime.capturing && runtime.capture_mode != 2) return note(900);
  if (runtime.register_code) return note(runtime.register_code);
  if (len > runtime.largest) return note(1);
  for (const Pin &p : runtime.pins) {
    const auto *from = static_cast<const char *>(p.ptr);
    if (from && from < static_cast<char *>(ptr) + len && static_cast<char *>(ptr) < from + p.len) return note(712);
  }
  for (Pin &p : runtime.pins)
    if (!p.ptr) {
      p = {ptr, len};
      return 0;
    }
  return note(2);
}

inline int host_unregister(void *ptr) {
  if (runtime.release_code) return note(runtime.release_code);
  for (Pin &p : runtime.pins)
    if (p.ptr == ptr) {
      p = {};
      return 0;
    }
  return note(713);
}

inline int host_get_device_pointer(void **out, void *ptr, unsigned) {
  *out = ptr;
  return 0;
}
inline int get_last_error() {
  const int code = runtime.last_error;
  runtime.last_error = 0;
  return code;
}
inline int peek_at_last_error() { return runtime.last_error; }
inline int get_device_count(int *count) {
  ++runtime.count_calls;
  *count = runtime.devices;
  return note(runtime.count_code);
}
inline int get_device(int *device) { return *device = 0; }
inline int set_device(int) { return 0; }
inline int device_get_attribute(int *value, int, int) {
  *value = 1;
  return 0;
}
inline int pointer_get_attributes(void *attributes, const void *) { return *static_cast<int *>(attributes) = 0; }
inline const char *get_error_name(int) { return "fakeError"; }
inline int runtime_get_version(int *version) {
  *version = runtime.version;
  return 0;
}
inline int driver_get_version(int *version) {
  *version = 13000;
  return 0;
}
inline int exchange_capture_mode(int *mode) {
  std::swap(*mode, runtime.capture_mode);
  return 0;
}

inline constexpr struct {
  const char *name;
  void *(*function)();
} kSymbols[] = {
    {"cudaHostRegister", [] { return reinterpret_cast<void *>(host_register); }},
    {"cudaHostUnregister", [] { return reinterpret_cast<void *>(host_unregister); }},
    {"cudaHostGetDevicePointer", [] { return reinterpret_cast<void *>(host_get_device_pointer); }},
    {"cudaGetLastError", [] { return reinterpret_cast<void *>(get_last_error); }},
    {"cudaPeekAtLastError", [] { return reinterpret_cast<void *>(peek_at_last_error); }},
    {"cudaGetDeviceCount", [] { return reinterpret_cast<void *>(get_device_count); }},
    {"cudaPointerGetAttributes", [] { return reinterpret_cast<void *>(pointer_get_attributes); }},
    {"cudaGetErrorName", [] { return reinterpret_cast<void *>(get_error_name); }},
    {"cudaRuntimeGetVersion", [] { return reinterpret_cast<void *>(runtime_get_version); }},
    {"cudaDriverGetVersion", [] { return reinterpret_cast<void *>(driver_get_version); }},
    {"cudaGetDevice", [] { return reinterpret_cast<void *>(get_device); }},
    {"cudaSetDevice", [] { return reinterpret_cast<void *>(set_device); }},
    {"cudaDeviceGetAttribute", [] { return reinterpret_cast<void *>(device_get_attribute); }},
    {"cudaThreadExchangeStreamCaptureMode", [] { return reinterpret_cast<void *>(exchange_capture_mode); }},
};

inline void *symbol(void *, const char *name) {
  if (std::strcmp(name, runtime.missing) == 0) return nullptr;
  for (const auto &s : kSymbols)
    if (std::strcmp(name, s.name) == 0) return s.function();
  return nullptr;
}

}  // namespace fake
