#include "words.h"

#include <hostpin.h>

#include <cstdio>

namespace info {

namespace {

std::string decimal(double value, int digits, const char *unit) {
  char text[48];
  std::snprintf(text, sizeof(text), "%.*f %s", digits, value, unit);
  return text;
}

std::string dotted(uint32_t a, uint32_t b) { return std::to_string(a) + '.' + std::to_string(b); }
std::string dotted(uint32_t a, uint32_t b, uint32_t c) { return dotted(a, b) + '.' + std::to_string(c); }

}  // namespace

std::string size_words(uint64_t bytes) {
  static constexpr const char *kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  unsigned unit = 0;
  while (unit < 6 && bytes >> (10 * (unit + 1))) ++unit;
  const uint64_t one = uint64_t{1} << (10 * unit);
  if (bytes % one == 0) return std::to_string(bytes / one) + ' ' + kUnits[unit];
  return decimal(static_cast<double>(bytes) / static_cast<double>(one), 1, kUnits[unit]);
}

std::string time_words(uint64_t ns) {
  const auto t = static_cast<double>(ns);
  if (ns < 1000) return std::to_string(ns) + " ns";
  if (ns < 1000000) return decimal(t / 1e3, 2, "us");
  if (ns < 1000000000) return decimal(t / 1e6, 2, "ms");
  return decimal(t / 1e9, 2, "s");
}

std::string version_words(int32_t backend, uint32_t version) {
  if (version == 0) return "";
  switch (backend) {
    case HP_BACKEND_CUDA: return dotted(version / 1000, version % 1000 / 10);
    case HP_BACKEND_HIP: return dotted(version / 10000000, version / 100000 % 100, version % 100000);
    case HP_BACKEND_LEVEL_ZERO: return dotted(version >> 24, version >> 16 & 0xff, version & 0xffff);
    default: return std::to_string(version);
  }
}

}  // namespace info
