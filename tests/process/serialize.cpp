// Several processes that pin the same shared memory, on a driver that fails when two of them do so at once. One that waits in
// vain says so in the end, and output is a failure of a case.
#include "scenario.h"

#include <atomic>
#include <chrono>
#include <thread>

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

// A process that holds the lock: it is stopped inside the driver until it is killed.
pid_t start_holder(int file, Signal &inside) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child != 0) {
    inside.wait();
    return child;
  }
  alarm(patience);
  use(cudart12);
  char *memory = shared(file);
  hps_block("register");
  std::thread([memory] { _exit(hp_register(memory, size, one_by_one)); }).detach();
  CHECK_EQUAL(hps_wait_blocked("register", 1, 60000), 0);
  inside.give();
  for (;;) pause();
}

void kill_and_wait(pid_t child) {
  CHECK(kill(child, SIGKILL) == 0);
  CHECK(waitpid(child, nullptr, 0) == child);
}

// The one that waits goes on at the other's death, not when its patience ends.
void lock_dies_with_its_holder() {
  const int file = memfd();
  Signal inside;
  const pid_t holder = start_holder(file, inside);
  use(cudart12);
  char *memory = shared(file);
  std::atomic<bool> done{false};
  std::thread waiting([&] {
    CHECK_EQUAL(hp_register(memory, size, one_by_one), HP_OK);
    done = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(!done);
  CHECK_EQUAL(hps_calls("register"), 0);
  kill_and_wait(holder);
  waiting.join();
  CHECK_EQUAL(hp_unregister(memory), HP_OK);
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
                    {"threads_take_turns", threads_take_turns}});
}
