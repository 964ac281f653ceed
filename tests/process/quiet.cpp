// No call, whatever its outcome, changes what belongs to the whole process or thread: errno, signals, environment, locale,
// working directory, floating point, cancellation, output.
#include "devices.h"
#include "scenario.h"

#include <fenv.h>
#include <locale.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <functional>
#include <thread>

namespace {

using namespace scenario;

constexpr std::size_t size = 8 * page;
constexpr int some_errno = 4711;

std::string in_bytes(const void *object, std::size_t bytes) { return {static_cast<const char *>(object), bytes}; }

// Each part as one comparable text.
std::vector<std::pair<const char *, std::string>> surroundings() {
  std::string actions, variables;
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) != 0) continue;
    actions += in_bytes(&action.sa_handler, sizeof action.sa_handler) + in_bytes(&action.sa_flags, sizeof action.sa_flags);
    actions += in_bytes(&action.sa_mask, (NSIG - 1) / 8);  // of the rest nobody writes anything
  }
  for (char **v = environ; *v != nullptr; ++v) variables += std::string(*v) + '\n';
  sigset_t blocked{}, pending{};  // sigemptyset() leaves some of it as it is
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  sigpending(&pending);
  fenv_t floating{};
  fegetenv(&floating);
  int state = 0, type = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
  pthread_setcancelstate(state, nullptr);
  pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
  pthread_setcanceltype(type, nullptr);
  const mode_t mask = umask(0);
  umask(mask);
  cpu_set_t processors;
  CPU_ZERO(&processors);
  sched_getaffinity(0, sizeof processors, &processors);
  std::string limits;
  for (int resource = 0; resource < RLIMIT_NLIMITS; ++resource) {
    rlimit limit{};
    getrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
    limits += in_bytes(&limit, sizeof limit);
  }
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  return {{"signal actions", actions},
          {"environment", variables},
          {"locale", setlocale(LC_ALL, nullptr)},
          {"working directory", std::filesystem::current_path().string()},
          {"blocked signals", in_bytes(&blocked, sizeof blocked)},
          {"pending signals", in_bytes(&pending, sizeof pending)},
          {"floating point environment", in_bytes(&floating, sizeof floating)},
          {"cancellation", std::to_string(state) + " " + std::to_string(type)},
          {"umask", std::to_string(mask)},
          {"affinity", in_bytes(&processors, sizeof processors)},
          {"limits", limits},
          {"thread name", name},
          {"open files", std::to_string(open_files())},
          {"threads", std::to_string(threads())}};
}

// Runs the call and compares; `name` is for the message.
void expect_quiet(const char *name, const std::function<int32_t()> &call, int32_t expected) {
  const auto before = surroundings();
  errno = some_errno;
  const int32_t status = call();
  const int error = errno;
  if (error != some_errno) real::fail(name, 0, "errno", std::to_string(error));
  if (status != expected) real::fail(name, 0, "the status", std::to_string(status));
  const auto after = surroundings();
  for (std::size_t i = 0; i < before.size(); ++i)
    if (before[i] != after[i]) real::fail(name, 0, before[i].first, "changed");
}

void text_calls() {
  expect_quiet("hp_strerror", [] { return hp_strerror(HP_E_STUCK) != nullptr ? 0 : 1; }, 0);
  expect_quiet("hp_last_error", [] { return hp_last_error() != nullptr ? 0 : 1; }, 0);
  expect_quiet("hp_last_native_error", [] { return static_cast<int32_t>(hp_last_native_error()); }, 2);
  expect_quiet("hp_version_string", [] { return hp_version_string() != nullptr ? 0 : 1; }, 0);
  expect_quiet("hp_set_log_callback", [] { return hp_set_log_callback([](int32_t, const char *, void *) {}, nullptr), 0; }, 0);
}

void calls_on(char *memory, int32_t registered, int32_t device_status) {
  hp_backend_info info{};
  info.struct_size = sizeof info;
  hp_stats all{};
  all.struct_size = sizeof all;
  hp_region found{};
  found.struct_size = sizeof found;
  hp_config config{};
  config.struct_size = sizeof config;
  void *device = nullptr;
  expect_quiet("hp_configure", [&] { return hp_configure(&config); }, HP_OK);
  expect_quiet("hp_register, first", [&] { return hp_register(memory, size, 0); }, registered);
  expect_quiet("hp_register, second", [&] { return hp_register(memory + size, size, 0); }, registered);
  expect_quiet("hp_configure, late", [&] { return hp_configure(&config); }, HP_E_INVALID);
  expect_quiet("hp_get_backend", [&] { return hp_get_backend(&info); }, HP_OK);
  expect_quiet("hp_get_stats", [&] { return hp_get_stats(&all); }, HP_OK);
  expect_quiet("hp_query", [&] { return hp_query(memory, size, &found); }, registered);
  expect_quiet("hp_query, invalid", [&] { return hp_query(nullptr, size, &found); }, HP_E_INVALID);
  expect_quiet("hp_device_pointer", [&] { return hp_device_pointer(memory + 1, &device); }, device_status);
  expect_quiet("hp_unregister", [&] { return hp_unregister(memory); }, HP_OK);
  expect_quiet("hp_unregister, again", [&] { return hp_unregister(memory); }, HP_E_NOT_FOUND);
}

// What a runtime may do.
void disturb(const char *, const void *, std::size_t, void *) { errno = EDOM; }

void with_a_runtime() {
  use(cudart12);
  setenv("HOSTPIN_LOG", "off", 1);
  hps_on_call(disturb, nullptr);
  char *memory = map_memory(2 * size);
  calls_on(memory, HP_OK, HP_OK);
  CHECK(hps_script("fail=register:*:2") == 0);
  expect_quiet("hp_register, refused", [&] { return hp_register(memory, size, 0); }, HP_PAGEABLE);
  expect_quiet("hp_register, required", [&] { return hp_register(memory, size, HP_REGISTER_REQUIRED); }, HP_E_REFUSED);
  text_calls();
}

void without_a_runtime() {
  hp_set_log_callback([](int32_t, const char *, void *) { errno = EDOM; }, nullptr);
  calls_on(map_memory(2 * size), HP_PAGEABLE, HP_E_NOT_FOUND);
  expect_quiet("hp_register, required",
               [] { return hp_register(map_memory(page), page, HP_REGISTER_REQUIRED); }, HP_E_UNAVAILABLE);
}

void with_a_broken_environment() {
  for (const char *variable : {"HOSTPIN_LOG", "HOSTPIN_BACKEND", "HOSTPIN_MAX_SEGMENT", "HOSTPIN_BUDGET"})
    setenv(variable, "nonsense", 1);
  int lines = 0;
  hp_set_log_callback([](int32_t, const char *, void *counter) { ++*static_cast<int *>(counter); }, &lines);
  expect_quiet("hp_register", [] { return hp_register(map_memory(page), page, 0); }, HP_PAGEABLE);
  CHECK_EQUAL(lines, 5);
}

// The thread that releases everything ends with its work, and takes no signal that is meant for the program's.
void releasing_thread() {
  static volatile sig_atomic_t in_thread_of_program;
  static pid_t program_thread = gettid();
  use(cudart12);
  char *memory = map_memory(size);
  CHECK_EQUAL(hp_register(memory, size, 0), HP_OK);
  struct sigaction action {};
  action.sa_handler = [](int) { in_thread_of_program = gettid() == program_thread ? 1 : 2; };
  CHECK(sigaction(SIGUSR1, &action, nullptr) == 0);
  hps_block("unregister");
  CHECK_EQUAL(hp_unregister_all(0), HP_E_TIMEOUT);
  CHECK_EQUAL(hps_wait_blocked("unregister", 1, 60000), 0);
  sigset_t user;
  sigemptyset(&user);
  sigaddset(&user, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &user, nullptr);
  CHECK(kill(getpid(), SIGUSR1) == 0);  // to whatever thread takes it
  hps_unblock("unregister");
  CHECK_EQUAL(hp_unregister_all(UINT64_MAX), HP_OK);
  CHECK_EQUAL(in_thread_of_program, 0);
  pthread_sigmask(SIG_UNBLOCK, &user, nullptr);
  CHECK_EQUAL(in_thread_of_program, 1);
  for (int i = 0; i < 10000 && threads() > 1; ++i) usleep(1000);
  CHECK_EQUAL(threads(), 1);
}

void rounding_is_kept() {
  use(cudart12);
  fesetround(FE_UPWARD);
  feclearexcept(FE_ALL_EXCEPT);
  setlocale(LC_ALL, "C.UTF-8");
  char *memory = map_memory(size);
  expect_quiet("hp_register", [&] { return hp_register(memory, size, 0); }, HP_OK);
  expect_quiet("hp_unregister", [&] { return hp_unregister(memory); }, HP_OK);
  CHECK_EQUAL(fegetround(), FE_UPWARD);
}

// From the first line to the last of everything that the other cases do, also at the level that says most.
void nothing_on_stdout() {
  int ends[2];
  CHECK(pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0);
  CHECK(dup2(ends[1], STDOUT_FILENO) == STDOUT_FILENO);
  const CapturedStderr captured;
  setenv("HOSTPIN_LOG", "debug", 1);
  use(cudart12);
  char *memory = map_memory(2 * size);
  CHECK_EQUAL(hp_register(memory, size, 0), HP_OK);
  CHECK(hps_script("fail=register:*:2") == 0);
  CHECK_EQUAL(hp_register(memory + size, size, 0), HP_PAGEABLE);
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
  CHECK(captured.lines() >= 2);
  char byte = 0;
  CHECK(read(ends[0], &byte, 1) == -1 && errno == EAGAIN);
}

} // namespace

int main(int argc, char **argv) {
  return run_cases(argc, argv,
                   {{"with_a_runtime", with_a_runtime},
                    {"without_a_runtime", without_a_runtime},
                    {"with_a_broken_environment", with_a_broken_environment},
                    {"releasing_thread", releasing_thread},
                    {"rounding_is_kept", rounding_is_kept},
                    {"nothing_on_stdout", nothing_on_stdout}});
}
