// What HP_REGISTER_PREFAULT and HP_REGISTER_HUGEPAGES gain on memory whose pages are not there yet, and what the library
// costs where they are: beside one bare call of the runtime, with a runtime that really pins. Prints JSON.
//   prefault_bench PINNING_CUDART [REPETITIONS [MIB...]]     default: 7 repetitions of 1024 and 4096 MiB
#include <cerrno>
#include <functional>

#include "pinning.h"

namespace {

using namespace bench;

constexpr uint32_t kPrefault = HP_REGISTER_PREFAULT;
constexpr uint32_t kPrefaultHuge = HP_REGISTER_PREFAULT | HP_REGISTER_HUGEPAGES;

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
Json cold(const Runtime &runtime, uint64_t bytes, bool shared, int repetitions) {
  std::vector<double> bare, plain, prefault, huge;
  for (int i = 0; i < repetitions; ++i) {
    bare.push_back(warm([&] { return cold_bare(runtime, bytes, shared); }));
    plain.push_back(warm([&] { return cold_library(bytes, shared, 0); }));
    prefault.push_back(warm([&] { return cold_library(bytes, shared, kPrefault); }));
    huge.push_back(warm([&] { return cold_library(bytes, shared, kPrefaultHuge); }));
  }
  return {{"bare", summary(bare)},
          {"library", summary(plain)},
          {"prefault", summary(prefault)},
          {"prefault_and_huge_pages", summary(huge)},
          {"prefault_faster_by", rounded(median(bare) / median(prefault))},
          {"prefault_and_huge_pages_faster_by", rounded(median(bare) / median(huge))}};
}

Json present(const Runtime &runtime, uint64_t bytes, bool shared, int repetitions) {
  const Memory memory(bytes, shared);
  memory.small_pages();
  memory.make_present();
  struct {
    std::vector<double> wall, cpu;
  } bare, plain, prefault;
  const auto measure = [](auto &samples, auto pin) {
    double wall = 0;
    samples.cpu.push_back(cpu_milliseconds([&] { wall = milliseconds(pin); }));
    samples.wall.push_back(wall);
  };
  for (int i = 0; i < 5 * repetitions; ++i) {
    measure(bare, [&] { runtime.pin(memory.address(), bytes); });
    runtime.unpin(memory.address());
    measure(plain, [&] { pin_with_library(memory.address(), bytes, 0); });
    unpin_with_library(memory.address());
    measure(prefault, [&] { pin_with_library(memory.address(), bytes, kPrefault); });
    unpin_with_library(memory.address());
  }
  return {{"bare", summary(bare.wall)},
          {"library", summary(plain.wall)},
          {"prefault", summary(prefault.wall)},
          {"library_takes_times", rounded(median(plain.wall) / median(bare.wall))},
          {"prefault_takes_times", rounded(median(prefault.wall) / median(bare.wall))},
          {"library_takes_times_cpu", rounded(median(plain.cpu) / median(bare.cpu))},
          {"prefault_takes_times_cpu", rounded(median(prefault.cpu) / median(bare.cpu))}};
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 2) fail("usage: prefault_bench PINNING_CUDART [REPETITIONS [MIB...]]");
  const Runtime runtime(argv[1]);
  const int repetitions = argc > 2 ? std::max(1, std::atoi(argv[2])) : 7;
  std::vector<uint64_t> sizes;
  for (int i = 3; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10) * kMiB);
  if (sizes.empty()) sizes = {1024 * kMiB, 4096 * kMiB};
  Json results = Json::array();
  for (const uint64_t bytes : sizes) {
    if (bytes == 0 || bytes > available_memory()) fail("not a size in MiB that fits into memory");
    for (const bool shared : {false, true})
      results.push_back({{"bytes", bytes},
                         {"memory", shared ? "shared" : "anonymous"},
                         {"cold", cold(runtime, bytes, shared, repetitions)},
                         {"present", present(runtime, bytes, shared, repetitions)}});
  }
  const Json all = {{"machine", machine(runtime)}, {"repetitions", repetitions}, {"measured", results}};
  std::printf("%s\n", all.dump(2).c_str());
}
