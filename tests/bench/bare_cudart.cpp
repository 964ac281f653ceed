// A libcudart.so.12 that pins nothing: its calls only store what they are given, so that what a registration costs
// beyond the runtime's calls can be measured.
#include <cstddef>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
void *volatile g_last;
volatile size_t g_bytes;
}  // namespace

struct PointerAttributes {
  int type;
  int device;
  void *device_pointer;
  void *host_pointer;
};

EXPORT int cudaHostRegister(void *p, size_t bytes, unsigned) {
  g_last = p;
  g_bytes = bytes;
  return 0;
}
EXPORT int cudaHostUnregister(void *p) {
  g_last = p;
  return 0;
}
EXPORT int cudaHostGetDevicePointer(void **out, void *p, unsigned) {
  *out = p;
  return 0;
}
EXPORT int cudaGetLastError() { return 0; }
EXPORT int cudaPeekAtLastError() { return 0; }
EXPORT int cudaGetDeviceCount(int *out) {
  *out = 1;
  return 0;
}
EXPORT int cudaPointerGetAttributes(PointerAttributes *out, const void *) {
  *out = {};
  return 0;
}
EXPORT const char *cudaGetErrorName(int) { return "cudaSuccess"; }
EXPORT int cudaRuntimeGetVersion(int *out) {
  *out = 12000;
  return 0;
}
EXPORT int cudaDriverGetVersion(int *out) {
  *out = 12000;
  return 0;
}
EXPORT int cudaGetDevice(int *out) {
  *out = 0;
  return 0;
}
EXPORT int cudaSetDevice(int) { return 0; }
EXPORT int cudaDeviceGetAttribute(int *out, int, int) {
  *out = 1;
  return 0;
}
