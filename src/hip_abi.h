// The parts of HIP that are called, the same in libamdhip64.so.5 to .7. HIP's functions have CUDA's shapes; what
// differs is here.
#pragma once

namespace hp::hip {

// 8 is hipExtHostRegisterCoarseGrained, not CUDA's read-only: never pass CUDA's bits through.
enum : unsigned { kRegisterPortable = 1, kRegisterMapped = 2, kRegisterIoMemory = 4, kRegisterCoarseGrained = 8 };
enum : int { kRuntimeMemory = 1052, kRuntimeOther = 1053 };
enum : int { kMemoryTypeUnregistered = 0 };  // from version 6 on; before, pageable memory was an error
enum : int { kVersionsPerMajor = 10000000 };

}  // namespace hp::hip
