// Several processes that pin the same shared memory, on a driver that fails when two of them do so at once. One that waits in
// vain says so in the end, and output is a failure of a case. The program's own open(), lstat() and clock_gettime() come
// before libc's in the order of look-up, so that a case can have lock files of its own and a clock that it sets.
#include "scenario.h"

#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstring>
#include <ctime>
#include <thread>

namespace {

// Where the library's lock files are looked for; null: where it says.
std::atomic<const char *> lock_folder{nullptr};

std::atomic<int> lock_files_opened{0};  // in that folder

constexpr const char *lock_names[][2] = {{"/dev/shm/hostpin.lock", "/first"}, {"/tmp/hostpin.lock", "/second"}};

// What stands for a file: another one for a lock file, if there is a folder for these.
class StandIn {
 public:
  explicit StandIn(const char *path) : path_(path) {
    const char *folder = lock_folder;
    if (folder == nullptr || path == nullptr) return;
    for (const auto &[real_name, name] : lock_names) {
      if (std::strcmp(path, real_name) != 0) continue;
      snprintf(text_, sizeof text_, "%s%s", folder, name);
      path_ = text_;
    }
  }
  const char *path() const { return path_; }

 private:
  char text_[200];
  const char *path_;
};

// The monotonic clock: as it is, or so fast that no patience lasts, or stopped, so that it lasts for ever.
enum class Pace { real, fast, stopped };
std::atomic<Pace> pace{Pace::real};
std::atomic<long> leap{0};  // seconds

} // namespace

extern "C" int open(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const unsigned mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, unsigned) : 0;
  va_end(rest);
  const StandIn file(path);
  const auto result = static_cast<int>(syscall(SYS_openat, AT_FDCWD, file.path(), flags, mode));
  if (result >= 0 && file.path() != path) ++lock_files_opened;
  return result;
}

extern "C" int lstat(const char *path, struct stat *out) noexcept {
  return fstatat(AT_FDCWD, StandIn(path).path(), out, AT_SYMLINK_NOFOLLOW);
}

extern "C" int clock_gettime(clockid_t clock, timespec *out) noexcept {
  const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, out));
  if (clock != CLOCK_MONOTONIC) return result;
  if (pace == Pace::stopped) *out = {1000000, 0};
  if (pace == Pace::fast) out->tv_sec += leap += 10;
  return result;
}

namespace {

using namespace scenario;

constexpr std::size_t size = 16 * page;
constexpr uint32_t together = HP_REGISTER_REQUIRED, one_by_one = HP_REGISTER_REQUIRED | HP_REGISTER_SERIALIZE;

// Where the simulated driver keeps its own locks, for all processes of one case.
std::string folder() {
  char name[] = "/tmp/hostpin-serialize-XXXXXX";
  CHECK(mkdtemp(name) != nullptr);
  return name;
}

class Folder {
 public:
  ~Folder() { std::filesystem::remove_all(name_); }
  const std::string &name() const { return name_; }

 private:
  const std::string name_ = folder();
};

char *shared(int file) {
  CHECK(ftruncate(file, size) == 0);
  void *memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  CHECK(memory != MAP_FAILED);
  return static_cast<char *>(memory);
}

int memfd() { return memfd_create("shared", MFD_CLOEXEC); }

int file_in_shm() {
  char name[] = "/dev/shm/hostpin-serialize-XXXXXX";
  const int file = mkstemp(name);
  unlink(name);
  return file;
}

// A pipe as a starting gun, and to tell that something has happened.
class Signal {
 public:
  Signal() { CHECK(pipe(ends_) == 0); }
  void give(int times = 1) {
    for (int i = 0; i < times; ++i) CHECK(write(ends_[1], "x", 1) == 1);
  }
  void wait() {
    char got;
    CHECK(read(ends_[0], &got, 1) == 1);
  }

 private:
  int ends_[2];
};

void use_driver(const std::string &locks, const std::string &more = "") {
  setenv("HOSTPIN_SIM", ("file_lock=" + locks + more).c_str(), 1);
  hps_reset();  // reads it
  use(cudart12);
}

// Four processes register the memory at once; how many of them succeed.
int succeed(int file, uint32_t flags) {
  const Folder locks;
  Signal ready, go;
  pid_t children[4];
  for (pid_t &child : children) {
    child = fork();
    CHECK(child >= 0);
    if (child != 0) continue;
    alarm(patience);
    setenv("HOSTPIN_LOG", "off", 1);
    use_driver(locks.name(), ",delay=register:200");
    backend();
    char *memory = shared(file);
    ready.give();
    go.wait();
    _exit(hp_register(memory, size, flags) == HP_OK ? 0 : 1);
  }
  for (int i = 0; i < 4; ++i) ready.wait();
  go.give(4);
  int good = 0;
  for (const pid_t child : children) {
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    good += WEXITSTATUS(status) == 0;
  }
  return good;
}

void memfd_of_four_processes() {
  const int file = memfd();
  CHECK(succeed(file, together) < 4);
  CHECK_EQUAL(succeed(file, one_by_one), 4);
}

void shm_file_of_four_processes() {
  const int file = file_in_shm();
  CHECK(succeed(file, together) < 4);
  CHECK_EQUAL(succeed(file, one_by_one), 4);
}

// A process that is killed at the end.
template <class Body>
pid_t start_process(Signal &ready, Body body) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child != 0) {
    ready.wait();
    return child;
  }
  alarm(patience);
  use(cudart12);
  body();
  ready.give();
  for (;;) pause();
}

// One that holds the lock: it is stopped inside the driver.
pid_t start_holder_of(char *memory, Signal &inside) {
  return start_process(inside, [memory] {
    hps_block("register");
    std::thread([memory] { _exit(hp_register(memory, size, one_by_one)); }).detach();
    CHECK_EQUAL(hps_wait_blocked("register", 1, 60000), 0);
  });
}

pid_t start_holder(int file, Signal &inside) { return start_holder_of(shared(file), inside); }

void kill_and_wait(pid_t child) {
  CHECK(kill(child, SIGKILL) == 0);
  CHECK(waitpid(child, nullptr, 0) == child);
}

// A thread that registers what a process has the lock of, which it gets at the other's death, not when its patience ends.
template <class Call>
void wait_for_death_of(pid_t holder, Call call) {
  std::atomic<bool> done{false};
  std::thread waiting([&] {
    CHECK_EQUAL(call(), HP_OK);
    done = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(!done);
  CHECK_EQUAL(hps_calls("register"), 0);
  kill_and_wait(holder);
  waiting.join();
}

void lock_dies_with_its_holder() {
  const int file = memfd();
  Signal inside;
  const pid_t holder = start_holder(file, inside);
  use(cudart12);
  char *memory = shared(file);
  wait_for_death_of(holder, [=] { return hp_register(memory, size, one_by_one); });
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
}

void segment_of_system_v() {
  const int segment = shmget(IPC_PRIVATE, size, 0600);
  CHECK(segment >= 0);
  auto *memory = static_cast<char *>(shmat(segment, nullptr, 0));
  CHECK(shmctl(segment, IPC_RMID, nullptr) == 0);  // ends with those who have it
  Signal inside;
  const pid_t holder = start_holder_of(memory, inside);
  use(cudart12);
  wait_for_death_of(holder, [=] { return hp_register(memory, size, one_by_one); });
}

// One of two locks of a process ends; the other one holds.
void locks_of_a_process_end_one_by_one() {
  static char *a = shared(memfd());
  static char *b = shared(memfd());
  Signal ready;
  const pid_t holder = start_process(ready, [] {
    static Signal inside;
    hps_on_call(
        [](const char *function, const void *pointer, size_t, void *) {
          if (std::string_view(function) != "cudaHostRegister" || pointer != b) return;
          inside.give();
          for (;;) pause();
        },
        nullptr);
    std::thread([] { _exit(hp_register(b, size, one_by_one)); }).detach();
    inside.wait();
    CHECK_EQUAL(hp_register(a, size, one_by_one), HP_OK);
  });
  use(cudart12);
  CHECK_EQUAL(hp_register(a, size, one_by_one), HP_OK);
  hps_reset();
  wait_for_death_of(holder, [] { return hp_register(b, size, one_by_one); });
}

// Two shared objects with other memory between them.
struct TwoAndOneBetween {
  const int first = memfd(), between = memfd(), second = memfd();
  char *memory = map_memory(3 * size);
  const hp_range ranges[2] = {{0, size}, {2 * size, 3 * size}};

  TwoAndOneBetween() {
    std::size_t i = 0;
    for (const int file : {first, between, second}) {
      CHECK(ftruncate(file, size) == 0);
      CHECK(mmap(memory + i++ * size, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED);
    }
  }
  int32_t pin() const { return hp_register_ranges(memory, ranges, 2, one_by_one); }
};

void all_ranges_are_locked() {
  const TwoAndOneBetween parts;
  munmap(parts.memory + size, size);
  Signal inside;
  const pid_t holder = start_holder(parts.second, inside);
  use(cudart12);
  wait_for_death_of(holder, [&] { return parts.pin(); });
}

void what_lies_between_ranges_is_not_locked() {
  const TwoAndOneBetween parts;
  Signal inside;
  const pid_t holder = start_holder(parts.between, inside);
  use(cudart12);
  pace = Pace::stopped;
  CHECK_EQUAL(parts.pin(), HP_OK);
  kill_and_wait(holder);
}

// However many objects there are, and the last one as the first.
void many_objects_are_locked() {
  constexpr std::size_t count = 40;
  char *memory = map_memory(count * size);
  int file = -1;
  for (std::size_t i = 0; i < count; ++i) {
    file = memfd();
    CHECK(ftruncate(file, size) == 0);
    CHECK(mmap(memory + i * size, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED);
  }
  Signal inside;
  const pid_t holder = start_holder(file, inside);
  use(cudart12);
  wait_for_death_of(holder, [=] { return hp_register(memory, count * size, one_by_one); });
}

// A child that is forked while its parent has the lock outlives that and the parent.
void forked_child_does_not_keep_it() {
  const int file = memfd();
  Signal inside, end;
  const pid_t holder = fork();
  CHECK(holder >= 0);
  if (holder == 0) {
    alarm(patience);
    use(cudart12);
    char *memory = shared(file);
    hps_block("register");
    std::thread([memory] { _exit(hp_register(memory, size, one_by_one)); }).detach();
    CHECK_EQUAL(hps_wait_blocked("register", 1, 60000), 0);
    if (fork() == 0) {
      alarm(patience);
      inside.give();
      end.wait();
      _exit(0);
    }
    for (;;) pause();
  }
  inside.wait();
  kill_and_wait(holder);
  use(cudart12);
  char *memory = shared(file);
  CHECK_EQUAL(hp_register(memory, size, one_by_one), HP_OK);
  end.give();
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
}

void wait_ends_with_a_cancelled_job() {
  const int file = memfd();
  Signal inside;
  const pid_t holder = start_holder(file, inside);
  use(cudart12);
  char *memory = shared(file);
  const hp_range range = {0, size};
  hp_job *job = nullptr;
  CHECK_EQUAL(hp_register_start(memory, &range, 1, one_by_one, nullptr, &job), HP_OK);
  CHECK_EQUAL(hp_job_wait(job, 200000000), HP_E_TIMEOUT);
  CHECK_EQUAL(hp_job_cancel(job), HP_OK);
  CHECK_EQUAL(hp_job_wait(job, UINT64_MAX), HP_E_CANCELLED);
  CHECK_EQUAL(hps_calls("register"), 0);
  hp_job_free(job);
  kill_and_wait(holder);
}

// Other memory, and memory that no other process can have, is not waited for.
void other_memory_is_not_waited_for() {
  Signal inside;
  const pid_t holder = start_holder(memfd(), inside);
  use(cudart12);
  for (char *memory : {shared(memfd()), shared(file_in_shm()), map_memory(size)}) {
    CHECK_EQUAL(hp_register(memory, size, one_by_one), HP_OK);
    CHECK_EQUAL(hp_unregister(memory), HP_OK);
  }
  kill_and_wait(holder);
}

// After a registration the lock is free, and no file of it stays open.
void lock_ends_with_the_registration() {
  const int file = memfd();
  use(cudart12);
  char *memory = shared(file);
  CHECK_EQUAL(hp_register(map_memory(page), page, HP_REGISTER_REQUIRED), HP_OK);
  const long before = open_files();
  CHECK_EQUAL(hp_register(memory, size, one_by_one), HP_OK);
  CHECK_EQUAL(open_files(), before);
  check_clean("another process", in_child([file] {
                char fd[16];
                snprintf(fd, sizeof fd, "%d", file);
                setenv("HELD_FILE", fd, 1);
                CHECK(fcntl(file, F_SETFD, 0) == 0);
                become("as_another_process");
              }));
  hps_script("fail=register:*:801");
  CHECK_EQUAL(hp_register(memory + size / 2, size, one_by_one), HP_E_REFUSED);
  CHECK_EQUAL(open_files(), before);
}

void as_another_process() {
  if (getenv("HELD_FILE") == nullptr) return;
  use(cudart12);
  char *memory = shared(std::atoi(getenv("HELD_FILE")));
  CHECK_EQUAL(hp_register(memory, size, one_by_one), HP_OK);
}

// Threads of one process take turns, too: the lock is the process's.
void threads_take_turns() {
  const int file = memfd();
  use(cudart12);
  static std::atomic<int> now{0};
  static std::atomic<int> most{0};
  hps_on_call(
      [](const char *function, const void *, size_t, void *) {
        if (std::string_view(function) != "cudaHostRegister") return;
        const int n = ++now;
        if (n > most) most = n;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        --now;
      },
      nullptr);
  std::vector<std::thread> all;
  for (int i = 0; i < 4; ++i)
    all.emplace_back([memory = shared(file)] { CHECK_EQUAL(hp_register(memory, size, one_by_one), HP_OK); });
  for (std::thread &t : all) t.join();
  CHECK_EQUAL(most, 1);
  CHECK_EQUAL(hps_live_registrations(), 4);
}

// Threads with different objects do not wait for each other: two are in the driver at once.
void threads_with_other_memory_go_on() {
  use(cudart12);
  backend();
  hps_block("register");
  std::vector<std::thread> all;
  for (int i = 0; i < 2; ++i)
    all.emplace_back([memory = shared(memfd())] { CHECK_EQUAL(hp_register(memory, size, one_by_one), HP_OK); });
  CHECK_EQUAL(hps_wait_blocked("register", 2, 30000), 0);
  hps_unblock("register");
  for (std::thread &t : all) t.join();
}

// A job that holds its lock for long is in nobody's way.
void job_with_other_memory_goes_on() {
  use(cudart12);
  const hp_range ranges[] = {{0, page}, {2 * page, 3 * page}};
  hp_job_options slow{};
  slow.struct_size = sizeof slow;
  slow.pause_ns = INT64_MAX;
  hp_job *job = nullptr;
  CHECK_EQUAL(hp_register_start(shared(memfd()), ranges, 2, one_by_one, &slow, &job), HP_OK);
  while (hps_calls("register") == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  pace = Pace::stopped;
  CHECK_EQUAL(hp_register(shared(memfd()), size, one_by_one), HP_OK);
  pace = Pace::real;
  CHECK_EQUAL(hp_job_cancel(job), HP_OK);
  CHECK_EQUAL(hp_job_wait(job, UINT64_MAX), HP_E_CANCELLED);
  hp_job_free(job);
}

// The log lines of a case, whose callback registers memory that nobody else has.
struct Lines {
  std::vector<std::string> texts;
  char *memory = shared(memfd());

  Lines() { hp_set_log_callback(&Lines::add, this); }
  static void add(int32_t, const char *text, void *self) {
    auto &lines = *static_cast<Lines *>(self);
    lines.texts.emplace_back(text);
    pace = Pace::stopped;
    CHECK_EQUAL(hp_register(lines.memory, size, one_by_one), HP_OK);
    pace = Pace::fast;
  }
};

void wait_in_vain_is_told_once() {
  const int file = memfd();
  Signal inside;
  const pid_t holder = start_holder(file, inside);
  use(cudart12);
  backend();
  Lines lines;
  pace = Pace::fast;
  for (int i = 0; i < 2; ++i) CHECK_EQUAL(hp_register(shared(file), size, one_by_one), HP_OK);
  pace = Pace::real;
  CHECK_EQUAL(lines.texts.size(), 1);
  CHECK(contains(lines.texts[0], "going on beside"));
  kill_and_wait(holder);
}

void no_lock_file_is_told_once() {
  lock_folder = "/nonexistent";
  use(cudart12);
  backend();
  Lines lines;
  for (int i = 0; i < 2; ++i) CHECK_EQUAL(hp_register(shared(memfd()), size, one_by_one), HP_OK);
  CHECK_EQUAL(lines.texts.size(), 1);
  CHECK(contains(lines.texts[0], "HP_REGISTER_SERIALIZE has no effect"));
  CHECK(contains(lines.texts[0], "/dev/shm/hostpin.lock"));
  CHECK(contains(lines.texts[0], std::strerror(ENOENT)));
}

void callback_may_register_the_same_memory() {
  lock_folder = "/nonexistent";
  use(cudart12);
  backend();
  static char *memory = shared(memfd());
  static int32_t again = HP_E_INVALID;
  hp_set_log_callback([](int32_t, const char *, void *) { again = hp_register(memory, size, one_by_one); }, nullptr);
  CHECK_EQUAL(hp_register(memory, size, one_by_one), HP_OK);
  CHECK_EQUAL(again, HP_OK);
  for (int i = 0; i < 2; ++i) CHECK_EQUAL(hp_unregister(memory), HP_OK);
}

// Lock files of a case alone, which may remove them.
class OwnLockFiles {
 public:
  OwnLockFiles() { lock_folder = folder_.name().c_str(); }
  void remove_first() { CHECK(unlink((folder_.name() + "/first").c_str()) == 0); }
  mode_t mode_of(const char *name) const {
    struct stat file = {};
    return stat((folder_.name() + name).c_str(), &file) == 0 ? file.st_mode & 07777 : 0;
  }
  void deny_first() { CHECK(mkdir((folder_.name() + "/first").c_str(), 0700) == 0); }  // which cannot be opened for writing

 private:
  const Folder folder_;
};

void lock_file_is_for_all_users() {
  const OwnLockFiles locks;
  umask(077);
  use(cudart12);
  CHECK_EQUAL(hp_register(shared(memfd()), size, one_by_one), HP_OK);
  CHECK_EQUAL(locks.mode_of("/first"), 0666);
}

void other_lock_file_will_do() {
  OwnLockFiles locks;
  locks.deny_first();
  const int file = memfd();
  Signal inside;
  const pid_t holder = start_holder(file, inside);
  CHECK_EQUAL(locks.mode_of("/second"), 0666);
  use(cudart12);
  char *memory = shared(file);
  wait_for_death_of(holder, [=] { return hp_register(memory, size, one_by_one); });
}

// A process that takes the lock when it is told to. It is forked before its parent uses the library.
pid_t start_later_holder(int file, Signal &go, Signal &inside) {
  Signal ready;
  return start_process(ready, [=, &go, &inside] {
    hps_block("register");
    std::thread([=, &go] {
      go.wait();
      _exit(hp_register(shared(file), size, one_by_one));
    }).detach();
    std::thread([&inside] {
      CHECK_EQUAL(hps_wait_blocked("register", 1, 60000), 0);
      inside.give();
    }).detach();
  });
}

// One waits for the lock in a file that is then removed; meanwhile another one has the lock in the file that came after it.
void removed_lock_file_is_left() {
  OwnLockFiles locks;
  const int file = memfd();
  Signal inside, go, inside_too;
  const pid_t old_holder = start_holder(file, inside);
  const pid_t new_holder = start_later_holder(file, go, inside_too);
  use(cudart12);
  char *memory = shared(file);
  std::thread waiting([=] { CHECK_EQUAL(hp_register(memory, size, one_by_one), HP_OK); });
  while (lock_files_opened == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  locks.remove_first();
  go.give();
  inside_too.wait();
  kill_and_wait(old_holder);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK_EQUAL(hps_calls("register"), 0);
  kill_and_wait(new_holder);
  waiting.join();
}

// While a thread has a lock in the removed file, the others of its process go to the new one.
void removed_lock_file_is_not_shared() {
  OwnLockFiles locks;
  const int file = memfd();
  Signal go, inside;
  const pid_t holder = start_later_holder(file, go, inside);
  use(cudart12);
  backend();
  hps_block("register");
  std::thread first([memory = shared(memfd())] { CHECK_EQUAL(hp_register(memory, size, one_by_one), HP_OK); });
  CHECK_EQUAL(hps_wait_blocked("register", 1, 60000), 0);
  locks.remove_first();
  go.give();
  inside.wait();
  std::thread second([memory = shared(file)] { CHECK_EQUAL(hp_register(memory, size, one_by_one), HP_OK); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK_EQUAL(hps_calls("register"), 1);
  hps_unblock("register");
  first.join();
  CHECK_EQUAL(hps_calls("register"), 1);
  kill_and_wait(holder);
  second.join();
}

} // namespace

int main(int argc, char **argv) {
  return run_cases(argc, argv,
                   {{"memfd_of_four_processes", memfd_of_four_processes},
                    {"shm_file_of_four_processes", shm_file_of_four_processes},
                    {"lock_dies_with_its_holder", lock_dies_with_its_holder},
                    {"forked_child_does_not_keep_it", forked_child_does_not_keep_it},
                    {"wait_ends_with_a_cancelled_job", wait_ends_with_a_cancelled_job},
                    {"other_memory_is_not_waited_for", other_memory_is_not_waited_for},
                    {"lock_ends_with_the_registration", lock_ends_with_the_registration},
                    {"as_another_process", as_another_process},
                    {"threads_take_turns", threads_take_turns},
                    {"threads_with_other_memory_go_on", threads_with_other_memory_go_on},
                    {"job_with_other_memory_goes_on", job_with_other_memory_goes_on},
                    {"locks_of_a_process_end_one_by_one", locks_of_a_process_end_one_by_one},
                    {"all_ranges_are_locked", all_ranges_are_locked},
                    {"what_lies_between_ranges_is_not_locked", what_lies_between_ranges_is_not_locked},
                    {"many_objects_are_locked", many_objects_are_locked},
                    {"segment_of_system_v", segment_of_system_v},
                    {"wait_in_vain_is_told_once", wait_in_vain_is_told_once},
                    {"no_lock_file_is_told_once", no_lock_file_is_told_once},
                    {"callback_may_register_the_same_memory", callback_may_register_the_same_memory},
                    {"lock_file_is_for_all_users", lock_file_is_for_all_users},
                    {"other_lock_file_will_do", other_lock_file_will_do},
                    {"removed_lock_file_is_left", removed_lock_file_is_left},
                    {"removed_lock_file_is_not_shared", removed_lock_file_is_not_shared}});
}
