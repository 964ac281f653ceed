// Registering and asking: what hp_register and hp_unregister cost beyond the runtime's own calls, hp_query beside a
// std::map under a mutex, memory, size, and first use. Prints JSON.
//   query_bench LIBHOSTPIN BARE_CUDART FIRST_USE [quick]     quick: tries that all works, the numbers say nothing
#include <dlfcn.h>
#include <hostpin.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kSlot = 2 * kPage;  // one page is registered, one is not

// How much is measured.
struct Extents {
  size_t slots = 120000;
  size_t few = 10000;
  size_t many = 100000;
  size_t queries = 200000;
  int pair_samples = 101;
  int query_samples = 21;
  int first_uses = 11;
} g;

[[noreturn]] void fail(const std::string &what) {
  std::fprintf(stderr, "query_bench: %s\n", what.c_str());
  std::exit(1);
}

template <class Function>
Function *symbol(void *library, const char *name) {
  void *p = dlsym(library, name);
  if (!p) fail(dlerror());
  return reinterpret_cast<Function *>(p);
}

struct Library {
  explicit Library(void *l)
      : register_memory(symbol<decltype(hp_register)>(l, "hp_register")),
        unregister_memory(symbol<decltype(hp_unregister)>(l, "hp_unregister")),
        query(symbol<decltype(hp_query)>(l, "hp_query")),
        last_error(symbol<decltype(hp_last_error)>(l, "hp_last_error")) {}
  decltype(hp_register) *register_memory;
  decltype(hp_unregister) *unregister_memory;
  decltype(hp_query) *query;
  decltype(hp_last_error) *last_error;
};

struct Runtime {
  explicit Runtime(void *l)
      : host_register(symbol<int(void *, size_t, unsigned)>(l, "cudaHostRegister")),
        host_unregister(symbol<int(void *)>(l, "cudaHostUnregister")) {}
  int (*host_register)(void *, size_t, unsigned);
  int (*host_unregister)(void *);
};

double nanoseconds(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

// A sample's time for each operation, by the clock and by the processor time of its thread, which other load on the
// machine does not lengthen as much.
struct Time {
  double wall = 0;
  double cpu = 0;
};

template <class Work>
Time timed(size_t operations, Work work) {
  const double wall = nanoseconds(CLOCK_MONOTONIC);
  const double cpu = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
  work();
  const auto n = static_cast<double>(operations);
  return {(nanoseconds(CLOCK_MONOTONIC) - wall) / n, (nanoseconds(CLOCK_THREAD_CPUTIME_ID) - cpu) / n};
}

struct Samples {
  std::vector<double> wall, cpu;
  void add(const Time &t) {
    wall.push_back(t.wall);
    cpu.push_back(t.cpu);
  }
  static double quantile(std::vector<double> v, double q) {
    std::sort(v.begin(), v.end());
    return v[static_cast<size_t>(q * static_cast<double>(v.size() - 1))];
  }
  double best() const { return quantile(wall, 0); }
  double best_cpu() const { return quantile(cpu, 0); }
  void print(const char *name, const char *end) const {
    std::printf("    \"%s\": {\"best_ns\": %.1f, \"median_ns\": %.1f, ", name, best(), quantile(wall, 0.5));
    std::printf("\"best_cpu_ns\": %.1f, \"median_cpu_ns\": %.1f}%s\n", best_cpu(), quantile(cpu, 0.5), end);
  }
};

struct Pool {
  std::byte *base;
  void *slot(size_t i) const { return base + i * kSlot; }
};

void register_slot(const Library &hp, const Pool &pool, size_t i) {
  if (hp.register_memory(pool.slot(i), kPage, 0) != HP_OK) fail(hp.last_error());
}
void unregister_slot(const Library &hp, const Pool &pool, size_t i) {
  if (hp.unregister_memory(pool.slot(i)) != HP_OK) fail(hp.last_error());
}

// Slots from `count` on come and go, in a random order; the ones below stay.
void measure_pairs(const Library &hp, const Runtime &runtime, const Pool &pool) {
  std::mt19937_64 random(1);
  std::vector<size_t> free(2000);
  for (size_t &slot : free) slot = random() % g.few * (g.slots / g.few) + 1 + random() % (g.slots / g.few - 1);
  for (size_t i = 0; i < g.few; ++i) register_slot(hp, pool, i * (g.slots / g.few));
  Samples whole, bare;
  for (int sample = 0; sample < g.pair_samples; ++sample) {
    whole.add(timed(free.size(), [&] {
      for (size_t slot : free) {
        register_slot(hp, pool, slot);
        unregister_slot(hp, pool, slot);
      }
    }));
    bare.add(timed(free.size(), [&] {
      for (size_t slot : free) {
        void *p = pool.slot(slot);
        if (runtime.host_register(p, kPage, 1) || runtime.host_unregister(p)) fail("the runtime's calls failed");
      }
    }));
  }
  for (size_t i = 0; i < g.few; ++i) unregister_slot(hp, pool, i * (g.slots / g.few));
  std::printf("  \"register_and_unregister\": {\n    \"live\": %zu,\n", g.few);
  whole.print("library", ",");
  bare.print("bare_runtime", ",");
  std::printf("    \"above_bare_ns\": %.1f\n  },\n", whole.best() - bare.best());
}

// What is compared with: a map from first to last address, under a mutex.
class LockedMap {
public:
  void insert(uint64_t start, uint64_t end) {
    std::lock_guard lock(mutex_);
    map_[start] = end;
  }
  void erase(uint64_t start) {
    std::lock_guard lock(mutex_);
    map_.erase(start);
  }
  bool find(uint64_t addr) {
    std::lock_guard lock(mutex_);
    auto it = map_.upper_bound(addr);
    return it != map_.begin() && std::prev(it)->second > addr;
  }

private:
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> map_;
};

// Asks for random addresses of the first `g.many` slots, which all are registered.
template <class Ask>
Time ask(uint64_t seed, size_t queries, Ask one) {
  uint64_t x = seed * 0x9e3779b97f4a7c15 + 1;
  size_t missed = 0;
  const Time t = timed(queries, [&] {
    for (size_t i = 0; i < queries; ++i) {
      x ^= x << 13;
      x ^= x >> 7;
      x ^= x << 17;
      missed += !one((x >> 32) * g.many >> 32, x % kPage);
    }
  });
  if (missed) fail("a registered page was not found");
  return t;
}

template <class Ask, class Change>
Time ask_together(unsigned threads, size_t queries, Ask one, Change change) {
  std::atomic<bool> stop{false};
  std::atomic<unsigned> ready{0};
  std::vector<Time> times(threads);
  std::vector<std::thread> askers;
  std::thread writer([&] {
    std::mt19937_64 random(9);
    while (change && !stop) change(g.many + random() % (g.slots - g.many));
  });
  for (unsigned i = 0; i < threads; ++i)
    askers.emplace_back([&, i] {
      for (++ready; ready < threads;) std::this_thread::yield();
      times[i] = ask(i + 1, queries, one);
    });
  for (auto &t : askers) t.join();
  stop = true;
  writer.join();
  Time mean;
  for (const Time &t : times) {
    mean.wall += t.wall / threads;
    mean.cpu += t.cpu / threads;
  }
  return mean;
}

void measure_queries(const Library &hp, const Pool &pool) {
  LockedMap map;
  const auto address = [&](size_t i) { return reinterpret_cast<uint64_t>(pool.slot(i)); };
  std::vector<size_t> order(g.many);
  for (size_t i = 0; i < g.many; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937_64(2));
  for (size_t i : order) {
    register_slot(hp, pool, i);
    map.insert(address(i), address(i) + kPage);
  }
  const auto query = [&](size_t i, size_t offset) {
    return hp.query(static_cast<std::byte *>(pool.slot(i)) + offset, 1, nullptr) == HP_OK;
  };
  const auto query_region = [&](size_t i, size_t offset) {
    hp_region r = {};
    r.struct_size = sizeof r;
    return hp.query(static_cast<std::byte *>(pool.slot(i)) + offset, 1, &r) == HP_OK;
  };
  const auto find = [&](size_t i, size_t offset) { return map.find(address(i) + offset); };
  const std::function<void(size_t)> nothing;
  const std::function<void(size_t)> churn = [&](size_t i) {
    register_slot(hp, pool, i);
    unregister_slot(hp, pool, i);
  };
  const std::function<void(size_t)> churn_map = [&](size_t i) {
    map.insert(address(i), address(i) + kPage);
    map.erase(address(i));
  };
  Samples one, one_region, two, two_changing, map_one, map_two, map_two_changing;
  for (int sample = 0; sample < g.query_samples; ++sample) {
    one.add(ask(1, g.queries, query));
    one_region.add(ask(1, g.queries, query_region));
    map_one.add(ask(1, g.queries / 4, find));
    two.add(ask_together(2, g.queries, query, nothing));
    map_two.add(ask_together(2, g.queries / 4, find, nothing));
    two_changing.add(ask_together(2, g.queries, query, churn));
    map_two_changing.add(ask_together(2, g.queries / 4, find, churn_map));
  }
  std::printf("  \"query\": {\n    \"segments\": %zu,\n", g.many);
  one.print("one_thread", ",");
  one_region.print("one_thread_with_region", ",");
  two.print("two_threads", ",");
  two_changing.print("two_threads_and_a_writer", ",");
  map_one.print("locked_map_one_thread", ",");
  map_two.print("locked_map_two_threads", ",");
  map_two_changing.print("locked_map_two_threads_and_a_writer", ",");
  std::printf("    \"rate_of_two_threads\": %.2f,\n", 2 * one.best() / two.best());
  // Where other programs keep the processors busy the clock says nothing of this; what the threads used does.
  std::printf("    \"rate_of_two_threads_cpu\": %.2f,\n", 2 * one.best_cpu() / two.best_cpu());
  std::printf("    \"faster_than_locked_map\": %.1f,\n", map_one.best() / one.best());
  std::printf("    \"faster_than_locked_map_on_two_threads\": %.1f\n  },\n", map_two.best() / two.best());
}

long resident() {
  long pages = 0, ignored = 0;
  std::ifstream("/proc/self/statm") >> ignored >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

// In random order, which fills trees least.
void measure_memory(const Library &hp, const Pool &pool) {
  std::vector<size_t> order(g.many);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  const long before = resident();
  for (size_t i : order) register_slot(hp, pool, i);
  const long after = resident();
  for (size_t i : order) unregister_slot(hp, pool, i);
  std::printf("  \"memory\": {\"registrations\": %zu, \"bytes_each\": %.1f},\n", g.many,
              static_cast<double>(after - before) / static_cast<double>(g.many));
}

std::string output_of(const std::string &command) {
  std::string out;
  FILE *pipe = popen(command.c_str(), "r");
  for (int c; pipe && (c = std::fgetc(pipe)) != EOF;) out += static_cast<char>(c);
  if (!pipe || pclose(pipe) != 0) fail("failed: " + command);
  return out;
}

void measure_first_use(const std::string &first_use, const std::string &library) {
  std::printf("  \"first_use\": [\n");
  for (int i = 0; i < g.first_uses; ++i) {
    std::string line = output_of("env -u HOSTPIN_CUDART HOSTPIN_LOG=off '" + first_use + "' '" + library + "'");
    line.erase(line.find_last_not_of('\n') + 1);
    std::printf("    %s%s\n", line.c_str(), i + 1 < g.first_uses ? "," : "");
  }
  std::printf("  ],\n");
}

}  // namespace

int main(int argc, char **argv) {
  const bool quick = argc == 5 && std::string(argv[4]) == "quick";
  if (argc != 4 && !quick) fail("usage: query_bench LIBHOSTPIN BARE_CUDART FIRST_USE [quick]");
  if (quick) g = {1200, 100, 1000, 2000, 1, 1, 1};
  setenv("HOSTPIN_CUDART", argv[2], 1);
  setenv("HOSTPIN_BACKEND", "cuda", 1);
  void *library = dlopen(argv[1], RTLD_NOW);
  if (!library) fail(dlerror());
  void *runtime = dlopen(argv[2], RTLD_NOW);
  if (!runtime) fail(dlerror());
  void *base = mmap(nullptr, g.slots * kSlot, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) fail("mmap");
  const Library hp(library);
  const Pool pool{static_cast<std::byte *>(base)};
  std::printf("{\n");
  measure_memory(hp, pool);  // first, before memory is there that others left
  measure_pairs(hp, Runtime(runtime), pool);
  measure_queries(hp, pool);
  measure_first_use(argv[3], argv[1]);
  const std::string stripped = output_of("t=$(mktemp) && strip --strip-unneeded -o \"$t\" '" + std::string(argv[1]) +
                                         "' && stat -c %s \"$t\" && rm -f \"$t\"");
  std::printf("  \"stripped_library_bytes\": %s}\n", stripped.c_str());
}
