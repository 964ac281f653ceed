// libcudart_stub.so: a file that looks like a runtime by its name and by some symbols, as one is found in a public wheel.
// Whoever takes it for one is stopped at the first call.
#include "driver.h"

#define STUB(name)                                                                                                               \
    extern "C" __attribute__((visibility("default"))) int name() { sim::punish(#name, "libcudart_stub.so is not a runtime"); }

STUB(cudaHostRegister)
STUB(cudaHostUnregister)
STUB(cudaHostGetDevicePointer)
STUB(cudaGetLastError)
STUB(cudaPeekAtLastError)
STUB(cudaGetDeviceCount)
STUB(cudaGetDevice)
STUB(cudaSetDevice)
STUB(cudaDeviceGetAttribute)
STUB(cudaGetErrorName)
STUB(cudaGetErrorString)
STUB(cudaRuntimeGetVersion)
STUB(cudaDriverGetVersion)
