// However a process ends, its live registrations are the operating system's business: the library calls nobody, and the
// simulated runtime, which ends the program when it is called after its own teardown, has no reason to. All ways together
// are gone a thousand times.
#include "scenario.h"

#include <atomic>
#include <thread>

namespace {

using namespace scenario;

constexpr std::size_t size = 4 * page;
constexpr int registrations = 4;
char *memory;

// Runs last, since it is registered first.
void check_that_nobody_was_called() {
  if (hps_calls("unregister") == 0 && hps_live_registrations() == registrations) return;
  dprintf(STDERR_FILENO, "%d unregister calls at exit\n", static_cast<int>(hps_calls("unregister")));
  _exit(1);
}

void register_with(const char *variable, const std::string &runtime) {
  setenv(variable, runtime.c_str(), 1);
  memory = map_memory(registrations * size);
  for (int i = 0; i < registrations; ++i) CHECK_EQUAL(hp_register(memory + i * size, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(hps_live_registrations(), registrations);
}

void register_some() {
  std::atexit(check_that_nobody_was_called);
  std::at_quick_exit(check_that_nobody_was_called);
  register_with("HOSTPIN_CUDART", cudart12);
}

void return_from_main() { register_some(); }

void return_from_main_with_hip() {
  std::atexit(check_that_nobody_was_called);
  register_with("HOSTPIN_AMDHIP", hip7);
}

void return_from_main_with_the_driver() {
  std::atexit(check_that_nobody_was_called);
  register_with("HOSTPIN_CUDA_DRIVER", cuda);
}

void exit_function() {
  register_some();
  std::exit(0);
}

void quick_exit_function() {
  register_some();
  std::quick_exit(0);
}

void underscore_exit() {
  register_some();
  _exit(0);
}

void exit_from_a_thread() {
  register_some();
  std::thread([] { std::exit(0); }).join();
}

void register_in_a_thread_that_ended() {
  std::thread(register_some).join();
}

void main_ends_before_a_thread() {
  register_some();
  std::thread([main_thread = pthread_self()] {
    pthread_join(main_thread, nullptr);
    CHECK_EQUAL(hp_query(memory, size, nullptr), HP_OK);
    CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  }).detach();
  pthread_exit(nullptr);
}

// ---- Handlers and destructors of the program

// Registered later than the runtime was loaded, so the runtime still works when it runs.
void handler_unregisters_in_time() {
  register_with("HOSTPIN_CUDART", cudart12);
  std::atexit([] {
    for (int i = 0; i < registrations; ++i) CHECK_EQUAL(hp_unregister(memory + i * size), HP_OK);
    CHECK_EQUAL(hps_calls("unregister"), registrations);
    CHECK_EQUAL(hps_live_registrations(), 0);
  });
}

void handler_unregisters_all_in_time() {
  register_with("HOSTPIN_CUDART", cudart12);
  std::atexit([] {
    CHECK_EQUAL(hp_unregister_all(UINT64_MAX), HP_OK);
    CHECK_EQUAL(hps_live_registrations(), 0);
  });
}

// What asks no driver works to the very end.
void handler_asks_late() {
  std::atexit([] {
    CHECK_EQUAL(hp_query(memory, size, nullptr), HP_OK);
    CHECK_EQUAL(hp_unregister(memory + 1), HP_E_NOT_FOUND);
    CHECK(contains(hp_last_error(), "no registration"));
    CHECK_EQUAL(stats().registrations, registrations);
    CHECK_EQUAL(backend().backend, HP_BACKEND_CUDA);
    hp_set_log_callback(nullptr, nullptr);
  });
  register_some();
}

// Late handlers: the runtime is torn down by then, and is not called.
void handler_unregisters_late() {
  std::atexit([] {
    for (int i = 0; i < registrations; ++i) CHECK_EQUAL(hp_unregister(memory + i * size), HP_OK);
    CHECK_EQUAL(hp_query(memory, registrations * size, nullptr), HP_PAGEABLE);
    CHECK_EQUAL(stats().failed_release, 0);
  });
  register_with("HOSTPIN_CUDART", cudart12);
}

void handler_unregisters_all_late() {
  std::atexit([] { CHECK_EQUAL(hp_unregister_all(UINT64_MAX), HP_OK); });
  register_with("HOSTPIN_CUDART", cudart12);
}

struct Pool {
  bool used = false;
  ~Pool() {
    if (!used) return;
    for (int i = 0; i < registrations; ++i) CHECK_EQUAL(hp_unregister(memory + i * size), HP_OK);
    CHECK_EQUAL(stats().registrations, 0);
  }
};
Pool pool;  // made before the runtime is loaded, so it is destroyed after the runtime's teardown

void static_destructor_unregisters_late() {
  register_with("HOSTPIN_CUDART", cudart12);
  pool.used = true;
}

// ---- Threads that are still inside

// Exit waits a moment for it.
void background_release_is_blocked() {
  register_with("HOSTPIN_CUDART", cudart12);
  hps_block("unregister");
  CHECK_EQUAL(hp_unregister_all(0), HP_E_TIMEOUT);
  CHECK_EQUAL(hps_wait_blocked("unregister", 1, 60000), 0);
  CHECK_EQUAL(stats().segments, registrations);
}

void threads_are_blocked() {
  register_some();
  hps_block("register");
  static char *const more = map_memory(size);
  for (int i = 0; i < 3; ++i) std::thread([] { std::exit(hp_register(more, size, 0) == HP_OK ? 1 : 2); }).detach();
  CHECK_EQUAL(hps_wait_blocked("register", 1, 60000), 0);
}

void threads_are_at_work() {
  setenv("HOSTPIN_LOG", "off", 1);
  register_with("HOSTPIN_CUDART", cudart12);
  static std::atomic<int> rounds{0};
  for (int t = 0; t < 3; ++t)
    std::thread([own = map_memory(size)] {
      for (;; ++rounds) {
        const int32_t status = hp_register(own, size, 0);
        if ((status != HP_OK && status != HP_PAGEABLE) || hp_unregister(own) != HP_OK) std::abort();
      }
    }).detach();
  while (rounds < 20) std::this_thread::yield();
}

} // namespace

int main(int argc, char **argv) {
  return run_cases(argc, argv,
                   {{"return_from_main", return_from_main},
                    {"return_from_main_with_hip", return_from_main_with_hip},
                    {"return_from_main_with_the_driver", return_from_main_with_the_driver},
                    {"exit_function", exit_function},
                    {"quick_exit_function", quick_exit_function},
                    {"underscore_exit", underscore_exit},
                    {"exit_from_a_thread", exit_from_a_thread},
                    {"register_in_a_thread_that_ended", register_in_a_thread_that_ended},
                    {"main_ends_before_a_thread", main_ends_before_a_thread},
                    {"handler_unregisters_in_time", handler_unregisters_in_time},
                    {"handler_unregisters_all_in_time", handler_unregisters_all_in_time},
                    {"handler_asks_late", handler_asks_late},
                    {"handler_unregisters_late", handler_unregisters_late},
                    {"handler_unregisters_all_late", handler_unregisters_all_late},
                    {"static_destructor_unregisters_late", static_destructor_unregisters_late},
                    {"background_release_is_blocked", background_release_is_blocked, {}, true},
                    {"threads_are_blocked", threads_are_blocked, {}, true},
                    {"threads_are_at_work", threads_are_at_work}},
                   60);
}
