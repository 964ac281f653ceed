// What HP_REGISTER_PREFAULT, or HP_REGISTER_PREFAULT with HP_REGISTER_HUGEPAGES, gains on memory whose pages are not there
// yet, and what the library costs where they are: beside one bare call of the runtime, with a runtime that really pins.
// Prints JSON.
//   prefault_bench PINNING_CUDART prefault|huge [REPETITIONS [MIB...]]     default: 7 repetitions of 1024 and 4096 MiB
#include <cerrno>
#include <functional>

#include "pinning.h"

namespace {

using namespace bench;

constexpr uint32_t kPrefault = HP_REGISTER_PREFAULT;
constexpr uint32_t kHuge = HP_REGISTER_PREFAULT | HP_REGISTER_HUGEPAGES;

double cold_bare(const Runtime &runtime, uint64_t bytes, bool shared) {
  const Memory memory(bytes, shared);
  memory.small_pages();
  const double ms = milliseconds([&] { runtime.pin(memory.address(), bytes); });
  runtime.unpin(memory.address());
  return ms;
}

double cold_library(uint64_t bytes, bool shared, uint32_t flags) {
  const Memory memory(bytes, shared);
  if (!(flags & HP_REGISTER_HUGEPAGES)) memory.small_pages();
  const double ms = milliseconds([&] { pin_with_library(memory.address(), bytes, flags); });
  unpin_with_library(memory.address());
  return ms;
}

// Twice, of which the second counts: it finds the pages that the first has left. A virtual machine may have given others
// back to its host, and to fetch them again is not the work that is compared.
double warm(const std::function<double()> &run) {
  run();
  return run();
}

// One after the other in each round, so that whatever else the machine does meets them all alike.
Json cold(const Runtime &runtime, uint64_t bytes, bool shared, uint32_t flags, int repetitions) {
  std::vector<double> bare, library;
  for (int i = 0; i < repetitions; ++i) {
    bare.push_back(warm([&] { return cold_bare(runtime, bytes, shared); }));
    library.push_back(warm([&] { return cold_library(bytes, shared, flags); }));
  }
  return {{"bare", summary(bare)},
          {"library", summary(library)},
          {"library_faster_by", rounded(median(bare) / median(library))}};
}

// Each round begins with another one, as what ran before leaves the caches to what runs next.
Json present(const Runtime &runtime, uint64_t bytes, bool shared, int repetitions) {
  const Memory memory(bytes, shared);
  memory.small_pages();
  memory.make_present();
  void *const p = memory.address();
  struct Way {
    std::function<void()> pin, unpin;
    std::vector<double> wall = {}, cpu = {};
  };
  const auto unpin = [&] { unpin_with_library(p); };
  Way ways[] = {{[&] { runtime.pin(p, bytes); }, [&] { runtime.unpin(p); }},
                {[&] { pin_with_library(p, bytes, 0); }, unpin},
                {[&] { pin_with_library(p, bytes, kPrefault); }, unpin}};
  for (size_t i = 0; i < 30 * static_cast<size_t>(repetitions); ++i) {
    Way &way = ways[(i + i / 3) % 3];
    double wall = 0;
    way.cpu.push_back(cpu_milliseconds([&] { wall = milliseconds(way.pin); }));
    way.wall.push_back(wall);
    way.unpin();
  }
  const auto &[bare, plain, prefault] = ways;
  return {{"bare", summary(bare.wall)},
          {"library", summary(plain.wall)},
          {"prefault", summary(prefault.wall)},
          {"library_takes_times", median_ratio(plain.wall, bare.wall)},
          {"prefault_takes_times", median_ratio(prefault.wall, bare.wall)},
          {"library_takes_times_cpu", median_ratio(plain.cpu, bare.cpu)},
          {"prefault_takes_times_cpu", median_ratio(prefault.cpu, bare.cpu)}};
}

}  // namespace

int main(int argc, char **argv) {
  const std::string way = argc > 2 ? argv[2] : "";
  if (way != "prefault" && way != "huge") fail("usage: prefault_bench PINNING_CUDART prefault|huge [REPETITIONS [MIB...]]");
  const Runtime runtime(argv[1]);
  const int repetitions = argc > 3 ? std::max(1, std::atoi(argv[3])) : 7;
  std::vector<uint64_t> sizes;
  for (int i = 4; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10) * kMiB);
  if (sizes.empty()) sizes = {1024 * kMiB, 4096 * kMiB};
  Json results = Json::array();
  for (const uint64_t bytes : sizes) {
    if (bytes == 0 || bytes > available_memory()) fail("not a size in MiB that fits into memory");
    for (const bool shared : {false, true}) {
      Json result = {{"bytes", bytes}, {"memory", shared ? "shared" : "anonymous"}};
      result["cold"] = cold(runtime, bytes, shared, way == "huge" ? kHuge : kPrefault, repetitions);
      if (way == "prefault") result["present"] = present(runtime, bytes, shared, repetitions);
      results.push_back(result);
    }
  }
  const Json all = {{"machine", machine(runtime)}, {"repetitions", repetitions}, {"measured", results}};
  std::printf("%s\n", all.dump(2).c_str());
}
