// Jobs that are left behind: a driver call that never returns, and a process that ends meanwhile. The simulated driver ends
// the program with a message when it is called after the teardown at exit.
#include "scenario.h"

#include <chrono>
#include <thread>

namespace {

using namespace scenario;

constexpr std::size_t size = 64 * page;

hp_job *start(char *memory, uint32_t flags = HP_REGISTER_REQUIRED, uint64_t pause_ns = 0) {
  hp_job_options options{};
  options.struct_size = sizeof options;
  options.chunk_bytes = page;
  options.pause_ns = pause_ns;
  const hp_range range = {0, size};
  hp_job *job = nullptr;
  CHECK_EQUAL(hp_register_start(memory, &range, 1, flags, &options, &job), HP_OK);
  return job;
}

hp_job *blocked_job() {
  use(cudart12);
  char *memory = map_memory(size);
  hps_block("register");
  hp_job *job = start(memory);
  CHECK_EQUAL(hps_wait_blocked("register", 1, 60000), 0);
  return job;
}

void call_that_never_returns() {
  hp_job *job = blocked_job();
  CHECK_EQUAL(hp_job_cancel(job), HP_OK);
  CHECK_EQUAL(hp_job_wait(job, 1000000), HP_E_TIMEOUT);
  hp_job_free(job);
  CHECK_EQUAL(hp_unregister_all(1000000), HP_E_TIMEOUT);
  CHECK_EQUAL(backend().backend, HP_BACKEND_CUDA);
  std::exit(0);
}

void exit_inside_a_call() {
  blocked_job();
  std::exit(0);
}

void quick_exit_inside_a_call() {
  blocked_job();
  std::quick_exit(0);
}

void return_inside_a_call() { hp_job_free(blocked_job()); }

void exit_between_calls() {
  // Registered before the runtime is loaded, so that it runs after the teardown of that: time to do the wrong thing.
  CHECK(std::atexit([] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }) == 0);
  use(cudart12);
  CHECK(hps_script("delay=register:1") == 0);
  hp_job *job = start(map_memory(size));
  hp_progress progress{};
  progress.struct_size = sizeof progress;
  do CHECK_EQUAL(hp_job_poll(job, &progress), HP_OK);
  while (progress.bytes_done == 0);
  std::exit(0);
}

void exit_in_a_pause() {
  use(cudart12);
  start(map_memory(size), 0, 3600u * uint64_t{1000000000});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::exit(0);
}

void without_backend() {
  setenv("HOSTPIN_BACKEND", "none", 1);
  setenv("HOSTPIN_LOG", "off", 1);
  char *memory = map_memory(size);
  hp_job *job = start(memory, 0);
  CHECK_EQUAL(hp_job_wait(job, UINT64_MAX), HP_PAGEABLE);
  CHECK(contains(hp_last_error(), "no GPU runtime"));
  hp_progress progress{};
  progress.struct_size = sizeof progress;
  CHECK_EQUAL(hp_job_poll(job, &progress), HP_OK);
  CHECK_EQUAL(progress.status, HP_PAGEABLE);
  CHECK_EQUAL(progress.pinned_bytes, 0);
  hp_job_free(job);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  job = start(memory);
  CHECK_EQUAL(hp_job_wait(job, UINT64_MAX), HP_E_UNAVAILABLE);
  hp_job_free(job);
  CHECK_EQUAL(hp_unregister(memory), HP_E_NOT_FOUND);
}

// The job's thread takes no signal of the application.
void signals_stay_the_applications() {
  hp_job *job = blocked_job();
  static thread_local bool main_thread = false;
  main_thread = true;
  static int elsewhere = 0, here = 0;
  std::signal(SIGUSR1, [](int) { ++(main_thread ? here : elsewhere); });
  for (int i = 0; i < 50; ++i) CHECK(kill(getpid(), SIGUSR1) == 0);
  CHECK(here > 0);
  CHECK_EQUAL(elsewhere, 0);
  hps_unblock("register");
  CHECK_EQUAL(hp_job_wait(job, UINT64_MAX), HP_OK);
  hp_job_free(job);
}

} // namespace

int main(int argc, char **argv) {
  return run_cases(argc, argv,
                   {{"call_that_never_returns", call_that_never_returns},
                    {"exit_inside_a_call", exit_inside_a_call},
                    {"quick_exit_inside_a_call", quick_exit_inside_a_call},
                    {"return_inside_a_call", return_inside_a_call},
                    {"exit_between_calls", exit_between_calls},
                    {"exit_in_a_pause", exit_in_a_pause},
                    {"without_backend", without_backend},
                    {"signals_stay_the_applications", signals_stay_the_applications}},
                   3);
}
