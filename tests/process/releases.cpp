// Registrations that share pages are released by several threads at once: every segment is given back once, and no unregister
// returns while the driver still holds a page of its range.
#include "scenario.h"

#include <atomic>
#include <random>
#include <thread>

namespace {

using namespace scenario;

constexpr std::size_t size = 16 * page;

// Both ranges have pages of one segment. One thread is in the driver with it when the other thread, which has more to release,
// comes to it.
char *memory, *shared;
std::atomic<int> inside_own{0}, inside_shared{0};
std::atomic<bool> let_own_go{false}, let_shared_go{false}, first_is_done{false};

void hold(const char *function, const void *ptr, std::size_t, void *) {
  if (!contains(function, "HostUnregister")) return;
  ++(ptr == shared ? inside_shared : inside_own);
  while (!(ptr == shared ? let_shared_go : let_own_go)) usleep(100);
}

void wait_for_one(const std::atomic<int> &threads_inside) {
  while (threads_inside == 0) usleep(100);
}

void shared_segment_goes_once() {
  use(cudart12);
  memory = map_memory(2 * size);
  shared = memory + size;
  CHECK_EQUAL(hp_register(shared, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(hp_register(memory, size + page, HP_REGISTER_REQUIRED), HP_OK);
  hps_on_call(hold, nullptr);
  std::thread first([] {
    CHECK_EQUAL(hp_unregister(memory), HP_OK);
    first_is_done = true;
  });
  wait_for_one(inside_own);
  std::thread second([] { CHECK_EQUAL(hp_unregister(shared), HP_OK); });
  wait_for_one(inside_shared);
  let_own_go = true;
  usleep(100000);  // for the first to come to the shared segment
  CHECK_EQUAL(inside_shared, 1);
  CHECK(!first_is_done);
  let_shared_go = true;
  first.join();
  second.join();
  CHECK_EQUAL(hps_calls("unregister"), 2);
  CHECK_EQUAL(stats().segments, 0);
  CHECK_EQUAL(hps_live_registrations(), 0);
}

void overlapping_ranges_without_end() {
  use(cudart12);
  CHECK(hps_script("maps=0") == 0);
  memory = map_memory(8 * size);
  std::vector<std::thread> workers;
  for (unsigned t = 0; t < 4; ++t)
    workers.emplace_back([own = memory + t * size, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 3000; ++i) {
        char *base = own + random() % size;
        const std::size_t bytes = 1 + random() % size;
        void *device = nullptr;
        CHECK_EQUAL(hp_register(base, bytes, HP_REGISTER_REQUIRED), HP_OK);
        CHECK_EQUAL(hps_pinned(base, bytes), HPS_ALL);
        CHECK_EQUAL(hp_query(base, bytes, nullptr), HP_OK);
        CHECK_EQUAL(hp_device_pointer(base, &device), HP_OK);
        CHECK_EQUAL(hp_unregister(base), HP_OK);
      }
    });
  for (std::thread &worker : workers) worker.join();
  CHECK_EQUAL(stats().segments, 0);
  CHECK_EQUAL(stats().pinned_bytes, 0);
  CHECK_EQUAL(hps_live_registrations(), 0);
}

} // namespace

int main(int argc, char **argv) {
  return run_cases(argc, argv,
                   {{"shared_segment_goes_once", shared_segment_goes_once},
                    {"overlapping_ranges_without_end", overlapping_ranges_without_end}});
}
