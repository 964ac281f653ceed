// Numbers as people read them.
#pragma once
#include <cstdint>
#include <string>

namespace info {

// 65536 -> "64 KiB", 1610612736 -> "1.5 GiB".
std::string size_words(uint64_t bytes);

// 3200000 -> "3.20 ms".
std::string time_words(uint64_t ns);

// A vendor's version number as the vendor writes it, "" for 0, unknown: CUDA's 12040 -> "12.4", HIP's 60443484 ->
// "6.4.43484", Level Zero's 0x10398d2 -> "1.3.39122".
std::string version_words(int32_t backend, uint32_t version);

}  // namespace info
