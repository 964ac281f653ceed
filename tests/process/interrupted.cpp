// Threads that are cancelled or interrupted by signals while they are inside the library.
#include "scenario.h"

#include <sys/time.h>

#include <atomic>
#include <thread>

namespace {

using namespace scenario;

constexpr std::size_t size = 16 * page;

// A thread of pthread alone, since cancellation is no business of std::thread.
class Thread {
 public:
  Thread(void *(*body)(void *), void *argument) { CHECK_EQUAL(pthread_create(&thread_, nullptr, body, argument), 0); }
  void cancel() const { CHECK_EQUAL(pthread_cancel(thread_), 0); }
  void signal(int number) const { CHECK_EQUAL(pthread_kill(thread_, number), 0); }
  bool was_cancelled() const {
    void *result = nullptr;
    CHECK_EQUAL(pthread_join(thread_, &result), 0);
    return result == PTHREAD_CANCELED;
  }

 private:
  pthread_t thread_{};
};

char *pinned_memory() {
  use(cudart12);
  char *memory = map_memory(4 * size);
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  return memory;
}

// All that a lock left behind would stop.
void check_all_works(char *memory) {
  for (std::size_t i = 0; i < 4; ++i) CHECK_EQUAL(hp_register(memory + i * size, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(hp_query(memory, 4 * size, nullptr), HP_OK);
  CHECK_EQUAL(hp_unregister_all(UINT64_MAX), HP_OK);
  CHECK_EQUAL(hps_live_registrations(), 0);
  CHECK_EQUAL(stats().segments, 0);
}

// The call is finished first; the thread ends at its own next cancellation point.
std::atomic<int32_t> answer;

void *register_and_test(void *memory) {
  answer = hp_register(memory, size, HP_REGISTER_REQUIRED);
  pthread_testcancel();
  return nullptr;
}

void *unregister_and_test(void *memory) {
  answer = hp_unregister(memory);
  pthread_testcancel();
  return nullptr;
}

void *unregister_all_and_test(void *) {
  answer = hp_unregister_all(UINT64_MAX);
  pthread_testcancel();
  return nullptr;
}

void cancel_while_blocked(const char *what, void *(*body)(void *), char *memory) {
  answer = 99;
  hps_block(what);
  const Thread thread(body, memory);
  CHECK_EQUAL(hps_wait_blocked(what, 1, 60000), 0);
  thread.cancel();
  usleep(20000);
  CHECK_EQUAL(answer, 99);  // it is still in there
  hps_unblock(what);
  CHECK(thread.was_cancelled());
  CHECK_EQUAL(answer, HP_OK);
}

void cancelled_in_register() {
  char *memory = pinned_memory();
  cancel_while_blocked("register", register_and_test, memory + 2 * size);
  CHECK_EQUAL(hp_query(memory + 2 * size, size, nullptr), HP_OK);
  check_all_works(memory);
}

void cancelled_in_the_choice() {
  use(cudart12);
  char *memory = map_memory(4 * size);
  cancel_while_blocked("cudaGetDeviceCount", register_and_test, memory);
  check_all_works(memory);
}

void cancelled_in_unregister() {
  char *memory = pinned_memory();
  cancel_while_blocked("unregister", unregister_and_test, memory);
  CHECK_EQUAL(hp_query(memory, 1, nullptr), HP_PAGEABLE);
  check_all_works(memory);
}

void cancelled_in_unregister_all() {
  char *memory = pinned_memory();
  cancel_while_blocked("unregister", unregister_all_and_test, memory);
  check_all_works(memory);
}

// Waiting for another thread is a cancellation point by itself.
void cancelled_while_it_waits_for_another() {
  char *memory = pinned_memory();
  hps_block("register");
  std::thread first([=] { CHECK_EQUAL(hp_register(memory + 2 * size, size, HP_REGISTER_REQUIRED), HP_OK); });
  CHECK_EQUAL(hps_wait_blocked("register", 1, 60000), 0);
  answer = 99;
  const Thread second(register_and_test, memory + 2 * size);
  usleep(20000);
  second.cancel();
  usleep(20000);
  CHECK_EQUAL(answer, 99);
  hps_unblock("register");
  CHECK(second.was_cancelled());
  CHECK_EQUAL(answer, HP_OK);
  first.join();
  check_all_works(memory);
}

void cancelled_in_a_log_callback() {
  setenv("HOSTPIN_BACKEND", "none", 1);
  hp_set_log_callback([](int32_t, const char *, void *) { pthread_testcancel(); }, nullptr);
  char *memory = map_memory(size);
  answer = 99;
  const Thread thread(
      [](void *argument) -> void * {
        pthread_cancel(pthread_self());
        answer = hp_register(argument, size, 0);
        pthread_testcancel();
        return nullptr;
      },
      memory);
  CHECK(thread.was_cancelled());
  CHECK_EQUAL(answer, HP_PAGEABLE);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
}

// ---- Signals

std::atomic<int> signals{0};
std::atomic<int> wrong_answers{0};
char *asked = nullptr;

void ask_in_handler(int) {
  const int before = errno;
  hp_region found{};
  found.struct_size = sizeof found;
  if (hp_query(asked, size, &found) != HP_OK || found.references == 0) ++wrong_answers;
  if (hp_query(asked + 2 * size, size, &found) < 0) ++wrong_answers;  // it comes and goes
  if (errno != before) ++wrong_answers;
  ++signals;
}

void handle(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;  // without SA_RESTART
  CHECK(sigaction(number, &action, nullptr) == 0);
}

void interrupt_while_blocked(const char *what, void *(*body)(void *), char *memory) {
  handle(SIGUSR1, [](int) { ++signals; });
  answer = 99;
  hps_block(what);
  const Thread thread(body, memory);
  CHECK_EQUAL(hps_wait_blocked(what, 1, 60000), 0);
  for (int i = 1; i <= 200; ++i) {
    thread.signal(SIGUSR1);
    while (signals < i) std::this_thread::yield();
  }
  CHECK_EQUAL(answer, 99);
  hps_unblock(what);
  CHECK(!thread.was_cancelled());
  CHECK_EQUAL(answer, HP_OK);
}

void signals_in_register() {
  char *memory = pinned_memory();
  interrupt_while_blocked("register", register_and_test, memory + 2 * size);
  check_all_works(memory);
}

void signals_in_unregister_all() {
  char *memory = pinned_memory();
  interrupt_while_blocked("unregister", unregister_all_and_test, memory);
  check_all_works(memory);
}

// The handler asks while the interrupted thread is anywhere in a change of the table.
void query_in_a_handler() {
  char *memory = pinned_memory();
  CHECK(hps_script("maps=0") == 0);
  asked = memory;
  handle(SIGALRM, ask_in_handler);
  itimerval timer{};
  timer.it_interval.tv_usec = timer.it_value.tv_usec = 50;
  CHECK(setitimer(ITIMER_REAL, &timer, nullptr) == 0);
  while (signals < 2000) {
    CHECK_EQUAL(hp_register(memory + 2 * size, size, HP_REGISTER_REQUIRED), HP_OK);
    CHECK_EQUAL(hp_register(memory + 3 * size / 2, size, HP_REGISTER_REQUIRED), HP_OK);
    CHECK_EQUAL(hp_unregister(memory + 2 * size), HP_OK);
    CHECK_EQUAL(hp_unregister(memory + 3 * size / 2), HP_OK);
  }
  timer = {};
  CHECK(setitimer(ITIMER_REAL, &timer, nullptr) == 0);
  CHECK_EQUAL(wrong_answers, 0);
  check_all_works(memory);
}

// The first use may be a query in a handler.
void query_in_a_handler_of_a_new_process() {
  asked = map_memory(4 * size);
  handle(SIGUSR1, [](int) {
    if (hp_query(asked, size, nullptr) != HP_PAGEABLE) ++wrong_answers;
  });
  CHECK(raise(SIGUSR1) == 0);
  CHECK_EQUAL(wrong_answers, 0);
}

} // namespace

int main(int argc, char **argv) {
  return run_cases(argc, argv,
                   {{"cancelled_in_register", cancelled_in_register},
                    {"cancelled_in_the_choice", cancelled_in_the_choice},
                    {"cancelled_in_unregister", cancelled_in_unregister},
                    {"cancelled_in_unregister_all", cancelled_in_unregister_all},
                    {"cancelled_while_it_waits_for_another", cancelled_while_it_waits_for_another},
                    {"cancelled_in_a_log_callback", cancelled_in_a_log_callback},
                    {"signals_in_register", signals_in_register},
                    {"signals_in_unregister_all", signals_in_unregister_all},
                    {"query_in_a_handler", query_in_a_handler},
                    {"query_in_a_handler_of_a_new_process", query_in_a_handler_of_a_new_process}});
}
