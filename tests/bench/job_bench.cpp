// What a pool's registration does to the rest of the program: one bare call of the runtime beside jobs. Meanwhile one
// thread maps and unmaps memory and another asks hp_query(); the longest that each had to wait is what stalls. Prints
// JSON.
// The runtime pins 1 GiB at a time, as io_uring takes no more. So the wait to map beside one bare call is that of 1 GiB; a
// driver that pins all at once would let others wait for its whole call.
//   job_bench PINNING_CUDART [REPETITIONS [MIB [CHUNK_MIB...]]]
//   default: 3 repetitions of 8192 MiB, or of four fifths of what is available; chunks of 1024 and of 256 MiB
#include <cerrno>
#include <atomic>
#include <functional>
#include <thread>

#include "pinning.h"

namespace {

using namespace bench;

// Calls `what` again and again, with rests between so that it takes no processor from the work it watches.
class Watch {
public:
  explicit Watch(std::function<void()> what)
      : thread_([this, what = std::move(what)] {
          while (!stop_) {
            longest_ms_ = std::max(longest_ms_, milliseconds(what));
            std::this_thread::sleep_for(std::chrono::microseconds(200));
          }
        }) {}
  double longest_ms() {
    stop_ = true;
    thread_.join();
    return longest_ms_;
  }

private:
  std::atomic<bool> stop_{false};
  double longest_ms_ = 0;
  std::thread thread_;
};

void map_and_unmap() {
  constexpr size_t kBytes = 65536;
  void *p = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) fail("mmap");
  *static_cast<volatile char *>(p) = 1;
  munmap(p, kBytes);
}

struct Samples {
  std::vector<double> total, call, map_wait, query_wait;
};

// `pin` pins, `unpin` releases; only the first is watched.
template <class Pin, class Unpin>
void measure(const Runtime &runtime, const Memory &memory, Samples &s, Pin pin, Unpin unpin) {
  runtime.longest_call_ms();
  Watch map(map_and_unmap);
  Watch query([&] {
    if (hp_query(memory.address(), 1, nullptr) < 0) fail(hp_last_error());
  });
  s.total.push_back(milliseconds([&] { pin(memory.address()); }));
  s.map_wait.push_back(map.longest_ms());
  s.query_wait.push_back(query.longest_ms());
  s.call.push_back(runtime.longest_call_ms());
  unpin(memory.address());
}

struct Way {
  uint64_t chunk;  // 0: one bare call
  uint32_t flags;
  Samples samples;
};

void run_job(void *p, uint64_t bytes, const Way &way) {
  const hp_range all = {0, bytes};
  hp_job_options options = {};
  options.struct_size = sizeof options;
  options.chunk_bytes = way.chunk;
  hp_job *job = nullptr;
  if (hp_register_start(p, &all, 1, way.flags | HP_REGISTER_REQUIRED, &options, &job) != HP_OK ||
      hp_job_wait(job, UINT64_MAX) != HP_OK)
    fail(hp_last_error());
  hp_job_free(job);
}

void measure(const Runtime &runtime, const Memory &memory, uint64_t bytes, Way &way, Samples &samples) {
  if (way.chunk)
    measure(runtime, memory, samples, [&](void *p) { run_job(p, bytes, way); }, unpin_with_library);
  else
    measure(runtime, memory, samples, [&](void *p) { runtime.pin(p, bytes); }, [&](void *p) { runtime.unpin(p); });
}

// Each on memory without pages. Twice, of which the second counts: see prefault_bench.cpp.
void measure_cold(const Runtime &runtime, uint64_t bytes, int repetitions, std::vector<Way> &ways) {
  for (int i = 0; i < repetitions; ++i)
    for (Way &way : ways) {
      Samples ignored;
      for (Samples *samples : {&ignored, &way.samples}) {
        const Memory memory(bytes, false);
        memory.small_pages();
        measure(runtime, memory, bytes, way, *samples);
      }
    }
}

void measure_present(const Runtime &runtime, uint64_t bytes, int repetitions, std::vector<Way> &ways) {
  const Memory memory(bytes, false);
  memory.small_pages();
  memory.make_present();
  for (int i = 0; i < 3 * repetitions; ++i)
    for (Way &way : ways) measure(runtime, memory, bytes, way, way.samples);
}

Json report(const Samples &s) {
  return {{"total", summary(s.total)},
          {"longest_call", summary(s.call)},
          {"longest_wait_to_map", summary(s.map_wait)},
          {"longest_wait_to_query", summary(s.query_wait)}};
}

Json report(const Way &way, uint64_t bytes, const Samples &bare) {
  const auto ratio = [](const std::vector<double> &a, const std::vector<double> &b) {
    return rounded(median(a) / median(b));
  };
  Json r = {{"chunk_bytes", way.chunk}, {"prefault", (way.flags & HP_REGISTER_PREFAULT) != 0}};
  r.update(report(way.samples));
  r["sizes_ratio"] = rounded(static_cast<double>(bytes) / static_cast<double>(way.chunk));
  r["longest_call_shorter_by"] = ratio(bare.call, way.samples.call);
  r["longest_wait_to_map_shorter_by"] = ratio(bare.map_wait, way.samples.map_wait);
  r["total_takes_times"] = ratio(way.samples.total, bare.total);
  return r;
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 2) fail("usage: job_bench PINNING_CUDART [REPETITIONS [MIB [CHUNK_MIB...]]]");
  const Runtime runtime(argv[1]);
  const int repetitions = argc > 2 ? std::max(1, std::atoi(argv[2])) : 3;
  const uint64_t fits = available_memory() / 5 * 4 / (1024 * kMiB) * (1024 * kMiB);
  const uint64_t bytes = argc > 3 ? std::strtoull(argv[3], nullptr, 10) * kMiB : std::min(8192 * kMiB, fits);
  if (bytes == 0 || bytes > available_memory()) fail("not a size in MiB that fits into memory");
  std::vector<uint64_t> chunks;
  for (int i = 4; i < argc; ++i) chunks.push_back(std::strtoull(argv[i], nullptr, 10) * kMiB);
  if (chunks.empty()) chunks = {1024 * kMiB, 256 * kMiB};
  Json result = {{"machine", machine(runtime)}, {"repetitions", repetitions}, {"bytes", bytes}};
  for (const bool present : {true, false}) {
    std::vector<Way> ways = {{0, 0, {}}};
    for (const uint64_t chunk : chunks)
      for (const uint32_t flags : {0u, HP_REGISTER_PREFAULT}) ways.push_back({chunk, flags, {}});
    (present ? measure_present : measure_cold)(runtime, bytes, repetitions, ways);
    const Samples &one_call = ways.front().samples;
    Json jobs = Json::array();
    for (size_t i = 1; i < ways.size(); ++i) jobs.push_back(report(ways[i], bytes, one_call));
    result[present ? "present" : "cold"] = {{"bare", report(one_call)}, {"jobs", jobs}};
  }
  std::printf("%s\n", result.dump(2).c_str());
}
