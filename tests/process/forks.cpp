// In a child of fork nothing reaches a runtime (the simulated ones end the process if it does) and nothing hangs, whatever
// the parent's threads were doing at that moment; the parent goes on.
#include "scenario.h"

#include <dlfcn.h>
#include <spawn.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

namespace {

using namespace scenario;

constexpr std::size_t size = 16 * page;

void ignore_line(int32_t, const char *, void *) {}

// Everything that a child may do, with the parent's registration at `pinned`. No failure may go unseen: the output is the
// parent's.
void everything_in_a_child(char *pinned) {
  void *device = pinned;
  hp_config config{};
  config.struct_size = sizeof config;
  hp_backend_info info{};
  info.struct_size = sizeof info;
  hp_stats counters{};
  counters.struct_size = sizeof counters;
  hp_region found{};
  found.struct_size = sizeof found;
  hp_set_log_callback(ignore_line, nullptr);
  hp_set_log_callback(nullptr, nullptr);
  CHECK_EQUAL(hp_query(pinned, 1, &found), HP_PAGEABLE);
  CHECK_EQUAL(found.end, 0);
  CHECK_EQUAL(hp_register(pinned, size, 0), HP_E_FORKED);
  CHECK(contains(hp_last_error(), "hp_register: called in a forked child"));
  CHECK_EQUAL(hp_last_native_error(), 0);
  CHECK_EQUAL(hp_register(pinned + 4 * size, size, HP_REGISTER_REQUIRED), HP_E_FORKED);
  CHECK_EQUAL(hp_register(nullptr, 0, ~0u), HP_E_FORKED);
  CHECK_EQUAL(hp_unregister(pinned), HP_E_FORKED);
  CHECK_EQUAL(hp_unregister_all(UINT64_MAX), HP_E_FORKED);
  CHECK_EQUAL(hp_device_pointer(pinned, &device), HP_E_FORKED);
  CHECK(device == pinned);
  CHECK_EQUAL(hp_get_backend(&info), HP_E_FORKED);
  CHECK_EQUAL(hp_configure(&config), HP_E_FORKED);
  const hp_range range{0, size};
  hp_job *job = reinterpret_cast<hp_job *>(pinned);
  CHECK_EQUAL(hp_register_ranges(pinned, &range, 1, 0), HP_E_FORKED);
  CHECK_EQUAL(hp_register_start(pinned, &range, 1, 0, nullptr, &job), HP_E_FORKED);
  CHECK(job == nullptr);
  const hp_copy copy{pinned, nullptr, size};
  hp_copy parts[1];
  std::size_t count = 0;
  CHECK_EQUAL(hp_split_copies(&copy, 1, parts, 1, &count), HP_E_FORKED);
  CHECK_EQUAL(hp_get_stats(&counters), HP_OK);
  CHECK_EQUAL(hp_query(nullptr, 0, nullptr), HP_E_INVALID);
  CHECK(contains(hp_last_error(), "hp_query: ptr is NULL"));
  std::size_t ranges = 0;
  CHECK_EQUAL(hp_split_ranges(nullptr, 0, 0, size, 0, 0, nullptr, 0, &ranges), HP_OK);
  CHECK_EQUAL(ranges, 1);
  CHECK(std::string_view(hp_strerror(HP_E_FORKED)) == "not possible in a forked child");
  CHECK_EQUAL(hp_version(), HP_VERSION_MAJOR << 16 | HP_VERSION_MINOR << 8 | HP_VERSION_PATCH);
  CHECK(std::string_view(hp_version_string()).starts_with(std::to_string(HP_VERSION_MAJOR) + "."));
}

void check_child(char *pinned) {
  check_clean("the child", in_child([pinned] { everything_in_a_child(pinned); }));
}

char *pinned_memory() {
  use(cudart12);
  char *memory = map_memory(8 * size);
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  return memory;
}

void check_parent(char *pinned) {
  CHECK_EQUAL(hp_query(pinned, size, nullptr), HP_OK);
  CHECK_EQUAL(hp_register(pinned + 2 * size, size, HP_REGISTER_REQUIRED), HP_OK);
  CHECK_EQUAL(hp_unregister(pinned + 2 * size), HP_OK);
  CHECK_EQUAL(hp_unregister(pinned), HP_OK);
  CHECK_EQUAL(hps_live_registrations(), 0);
}

void child_and_grandchild() {
  char *memory = pinned_memory();
  const uint64_t calls = hps_calls("*");
  check_clean("the child", in_child([memory, calls] {
                everything_in_a_child(memory);
                check_child(memory);
                CHECK_EQUAL(hps_calls("*"), calls);
                CHECK_EQUAL(stats().pinned_bytes, size);
                CHECK_EQUAL(hps_live_registrations(), 1);
              }));
  check_parent(memory);
}

void child_exits_by_itself() {
  char *memory = pinned_memory();
  check_clean("exit", in_child([] { std::exit(0); }));
  check_clean("quick_exit", in_child([] { std::quick_exit(0); }));
  check_parent(memory);
}

void child_of_a_thread() {
  char *memory = pinned_memory();
  std::thread([memory] {
    CHECK_EQUAL(hp_unregister(memory + page), HP_E_NOT_FOUND);
    const std::string said = hp_last_error();
    check_clean("the child", in_child([&] {
                  CHECK(hp_last_error() == said);
                  everything_in_a_child(memory);
                }));
  }).join();
  check_parent(memory);
}

void parent_without_backend() {
  setenv("HOSTPIN_BACKEND", "none", 1);
  setenv("HOSTPIN_LOG", "off", 1);
  char *memory = map_memory(8 * size);
  CHECK_EQUAL(hp_register(memory, size, 0), HP_PAGEABLE);
  check_child(memory);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
}

// A child whose parent never used the library is as good as a new process, its own children are not.
void parent_that_never_used_it() {
  use(cudart12);
  CHECK_EQUAL(hp_version() >> 16, HP_VERSION_MAJOR);
  CHECK_EQUAL(hp_query(cudart12.data(), 1, nullptr), HP_PAGEABLE);
  check_clean("the child", in_child([] {
                char *memory = pinned_memory();
                check_child(memory);
                check_parent(memory);
              }));
  char *memory = pinned_memory();
  check_child(memory);
  check_parent(memory);
}

// ---- A thread of the parent is inside the library

// Forks while `busy` waits inside a vendor call.
template <class Busy>
void fork_while_blocked(const char *what, char *memory, Busy busy) {
  hps_block(what);
  std::thread thread(busy);
  CHECK_EQUAL(hps_wait_blocked(what, 1, 60000), 0);
  for (int i = 0; i < 20; ++i) check_child(memory);
  hps_unblock(what);
  thread.join();
}

void fork_during_register() {
  char *memory = pinned_memory();
  fork_while_blocked("register", memory,
                     [=] { CHECK_EQUAL(hp_register(memory + 4 * size, size, HP_REGISTER_REQUIRED), HP_OK); });
  CHECK_EQUAL(hp_unregister(memory + 4 * size), HP_OK);
  check_parent(memory);
}

void fork_during_unregister() {
  char *memory = pinned_memory();
  CHECK_EQUAL(hp_register(memory + 4 * size, size, HP_REGISTER_REQUIRED), HP_OK);
  fork_while_blocked("unregister", memory, [=] { CHECK_EQUAL(hp_unregister(memory + 4 * size), HP_OK); });
  check_parent(memory);
}

void fork_during_unregister_all() {
  char *memory = pinned_memory();
  fork_while_blocked("unregister", memory, [] { CHECK_EQUAL(hp_unregister_all(UINT64_MAX), HP_OK); });
  CHECK_EQUAL(hp_register(memory, size, HP_REGISTER_REQUIRED), HP_OK);
  check_parent(memory);
}

void fork_during_the_choice() {
  use(cudart12);
  char *memory = map_memory(8 * size);
  fork_while_blocked("cudaGetDeviceCount", memory, [=] { CHECK_EQUAL(hp_register(memory, size, 0), HP_OK); });
  check_parent(memory);
}

void fork_during_device_pointer() {
  char *memory = pinned_memory();
  fork_while_blocked("cudaHostGetDevicePointer", memory, [=] {
    void *device = nullptr;
    CHECK_EQUAL(hp_device_pointer(memory, &device), HP_OK);
  });
  check_parent(memory);
}

// Two threads that wait for the same pages, one of them in the library's own queue.
void fork_while_threads_wait_for_each_other() {
  char *memory = pinned_memory();
  hps_block("register");
  std::thread first([=] { CHECK_EQUAL(hp_register(memory + 4 * size, size, HP_REGISTER_REQUIRED), HP_OK); });
  CHECK_EQUAL(hps_wait_blocked("register", 1, 60000), 0);
  std::thread second([=] { CHECK_EQUAL(hp_register(memory + 4 * size, size, HP_REGISTER_REQUIRED), HP_OK); });
  for (int i = 0; i < 20; ++i) check_child(memory);
  hps_unblock("register");
  first.join();
  second.join();
  for (int i = 0; i < 2; ++i) CHECK_EQUAL(hp_unregister(memory + 4 * size), HP_OK);
  check_parent(memory);
}

// A place in another thread where that waits until it is let go.
class Stop {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    reached_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void wait_until_reached() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reached_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false, open_ = false;
};

void fork_during_log_callback() {
  static Stop stop;
  setenv("HOSTPIN_BACKEND", "none", 1);
  hp_set_log_callback([](int32_t, const char *, void *) { stop.wait(); }, nullptr);
  char *memory = map_memory(8 * size);
  std::thread thread([=] { CHECK_EQUAL(hp_register(memory, size, 0), HP_PAGEABLE); });
  stop.wait_until_reached();
  for (int i = 0; i < 20; ++i) check_child(memory);
  stop.open();
  thread.join();
}

// The first use of the library ever, stopped in the calls of libc that it makes only then.
std::atomic<Stop *> stop_in_sysconf{nullptr}, stop_in_key_create{nullptr};

void pass(std::atomic<Stop *> &here) {
  if (Stop *stop = here.exchange(nullptr)) stop->wait();
}

// `call` fails, and passes the place.
template <class Call>
void fork_during_first_use(std::atomic<Stop *> &place, Call call) {
  use(cudart12);
  Stop stop;
  place = &stop;
  std::thread thread(call);
  stop.wait_until_reached();
  check_clean("the child", in_child([call] {
                call();
                check_child(pinned_memory());
              }));
  stop.open();
  thread.join();
  check_parent(pinned_memory());
}

void fork_while_page_size_is_asked_for() {
  fork_during_first_use(stop_in_sysconf, [] {
    std::size_t ranges = 0;
    CHECK_EQUAL(hp_split_ranges(nullptr, 0, 0, 1, 0, 0, nullptr, 0, &ranges), HP_E_INVALID);
    CHECK(contains(hp_last_error(), "page"));
  });
}

void fork_while_the_first_error_is_kept() {
  fork_during_first_use(stop_in_key_create, [] {
    CHECK_EQUAL(hp_query(nullptr, 1, nullptr), HP_E_INVALID);
    CHECK(contains(hp_last_error(), "ptr is NULL"));
  });
}

// ---- At any moment

void work_without_end(char *memory, unsigned number, const std::atomic<bool> &end) {
  std::mt19937 random(number);
  char *own = memory + number * size;
  while (!end) {
    const std::size_t offset = random() % size;
    if (hp_register(own + offset, 1 + random() % size, 0) == HP_OK) {
      void *device = nullptr;
      CHECK_EQUAL(hp_device_pointer(own + offset, &device), HP_OK);
      CHECK_EQUAL(hp_query(own + offset, 1, nullptr), HP_OK);
      CHECK_EQUAL(hp_unregister(own + offset), HP_OK);
    }
    hp_set_log_callback(random() % 2 ? ignore_line : nullptr, nullptr);
    CHECK_EQUAL(hp_unregister(memory + 6 * size), HP_E_NOT_FOUND);
    CHECK(contains(hp_last_error(), "no registration"));
    stats();
    backend();
  }
}

void forks_at_any_moment() {
  use(cudart12);
  CHECK(hps_script("maps=0") == 0);
  char *memory = map_memory(8 * size);
  CHECK_EQUAL(hp_register(memory + 7 * size, size, HP_REGISTER_REQUIRED), HP_OK);
  std::atomic<bool> end{false};
  std::vector<std::thread> workers;
  for (unsigned t = 0; t < 4; ++t) workers.emplace_back([&, t] { work_without_end(memory, t, end); });
  for (int i = 0; i < 300; ++i) check_child(memory + 7 * size);
  end = true;
  for (std::thread &worker : workers) worker.join();
  CHECK_EQUAL(hp_unregister(memory + 7 * size), HP_OK);
  CHECK_EQUAL(hps_live_registrations(), 0);
}

// ---- exec makes all new

void as_a_new_process() {
  char *memory = pinned_memory();
  check_parent(memory);
}

int status_of(pid_t child) {
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  return status;
}

void exec_in_a_child() {
  char *memory = pinned_memory();
  check_clean("fork and exec", run_again("as_a_new_process"));
  const pid_t child = vfork();
  if (child == 0) {
    execl("/proc/self/exe", "self", "as_a_new_process", static_cast<char *>(nullptr));
    _exit(127);
  }
  CHECK(child > 0);
  CHECK_EQUAL(status_of(child), 0);
  pid_t spawned = 0;
  char self[] = "/proc/self/exe", role[] = "as_a_new_process";
  char *const arguments[] = {self, role, nullptr};
  CHECK_EQUAL(posix_spawn(&spawned, self, nullptr, nullptr, arguments, environ), 0);
  CHECK_EQUAL(status_of(spawned), 0);
  check_parent(memory);
}

} // namespace

// These come before libc's in the order of look-up.
extern "C" long sysconf(int name) noexcept {
  static auto *const real = reinterpret_cast<long (*)(int)>(dlsym(RTLD_NEXT, "sysconf"));
  if (name == _SC_PAGESIZE) pass(stop_in_sysconf);
  return real(name);
}

extern "C" int pthread_key_create(pthread_key_t *key, void (*destroy)(void *)) noexcept {
  static auto *const real =
      reinterpret_cast<int (*)(pthread_key_t *, void (*)(void *))>(dlsym(RTLD_NEXT, "pthread_key_create"));
  pass(stop_in_key_create);
  return real(key, destroy);
}

int main(int argc, char **argv) {
  return run_cases(argc, argv,
                   {{"child_and_grandchild", child_and_grandchild},
                    {"child_exits_by_itself", child_exits_by_itself},
                    {"child_of_a_thread", child_of_a_thread},
                    {"parent_without_backend", parent_without_backend},
                    {"parent_that_never_used_it", parent_that_never_used_it},
                    {"fork_during_register", fork_during_register},
                    {"fork_during_unregister", fork_during_unregister},
                    {"fork_during_unregister_all", fork_during_unregister_all},
                    {"fork_during_the_choice", fork_during_the_choice},
                    {"fork_during_device_pointer", fork_during_device_pointer},
                    {"fork_while_threads_wait_for_each_other", fork_while_threads_wait_for_each_other},
                    {"fork_during_log_callback", fork_during_log_callback},
                    {"fork_while_page_size_is_asked_for", fork_while_page_size_is_asked_for},
                    {"fork_while_the_first_error_is_kept", fork_while_the_first_error_is_kept},
                    {"forks_at_any_moment", forks_at_any_moment},
                    {"as_a_new_process", as_a_new_process},
                    {"exec_in_a_child", exec_in_a_child}});
}
