// HP_REGISTER_PREFAULT and HP_REGISTER_HUGEPAGES: what is present afterwards, and that no byte changes. The simulated driver
// touches no page, so that what is present is the library's doing.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "register_test.h"

using namespace test;

namespace {

// While there is one of these, pages take long to be made present, as where memory is fragmented.
class Fragmented {
public:
  Fragmented() { current = this; }
  ~Fragmented() { current = nullptr; }
  Fragmented(const Fragmented &) = delete;
  Fragmented &operator=(const Fragmented &) = delete;
  size_t asked_for() const { return asked_for_; }      // bytes of huge pages
  size_t threads() const { return threads_.size(); }  // that made pages present

  static void see(size_t len, int advice) {
    Fragmented *const f = current;
    if (f && advice == MADV_HUGEPAGE) f->asked_for_ += len;
    if (f && advice == 23) f->populate();  // MADV_POPULATE_WRITE
  }

private:
  void populate() {
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    const std::lock_guard lock(mutex_);
    threads_.insert(std::this_thread::get_id());
  }

  static std::atomic<Fragmented *> current;
  std::atomic<size_t> asked_for_{0};
  std::mutex mutex_;
  std::set<std::thread::id> threads_;
};
std::atomic<Fragmented *> Fragmented::current{nullptr};

}  // namespace

// The library calls this one, as any symbol of the program comes before the C library's.
extern "C" __attribute__((visibility("default"))) int madvise(void *start, size_t len, int advice) noexcept {
  Fragmented::see(len, advice);
  return static_cast<int>(syscall(SYS_madvise, start, len, advice));
}

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr uint32_t kPrefault = HP_REGISTER_PREFAULT | HP_REGISTER_REQUIRED;

// A mapping with nothing of its kind beside it, so that the kernel tells of it alone.
class Alone {
public:
  explicit Alone(size_t len, int protection = PROT_READ | PROT_WRITE, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int file = -1)
      : len_(len), room_(mmap(nullptr, len + 2 * kMiB * 2, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    REQUIRE(room_ != MAP_FAILED);
    const uintptr_t start = (reinterpret_cast<uintptr_t>(room_) + 2 * kMiB) / (2 * kMiB) * (2 * kMiB);
    base_ = static_cast<char *>(mmap(reinterpret_cast<void *>(start), len, protection, flags | MAP_FIXED, file, 0));
    REQUIRE(base_ != MAP_FAILED);
  }
  ~Alone() { munmap(room_, len_ + 2 * kMiB * 2); }
  Alone(const Alone &) = delete;
  Alone &operator=(const Alone &) = delete;
  char *at(size_t offset = 0) const { return base_ + offset; }
  size_t size() const { return len_; }

  // A line of /proc/self/smaps, without its name.
  std::string line(const std::string &name) const {
    char start[32];
    snprintf(start, sizeof(start), "%lx-", reinterpret_cast<unsigned long>(base_));
    std::ifstream smaps("/proc/self/smaps");
    std::string text;
    while (std::getline(smaps, text) && text.rfind(start, 0) != 0) {
    }
    while (std::getline(smaps, text) && text.rfind("VmFlags", 0) != 0)
      if (text.rfind(name, 0) == 0) return text.substr(name.size());
    return text.rfind(name, 0) == 0 ? text.substr(name.size()) : "";
  }
  size_t bytes(const std::string &name) const {
    size_t kib = 0;
    std::istringstream(line(name)) >> kib;
    return kib << 10;
  }
  size_t resident() const { return bytes("Rss:"); }

private:
  size_t len_;
  void *room_;
  char *base_;
};

// A file that has a name on a real filesystem, and is gone with the object.
class File {
public:
  explicit File(size_t len) : file_(mkstemp(name_)) {
    REQUIRE(file_ >= 0);
    unlink(name_);
    std::string content(len, 0);
    for (size_t i = 0; i < len; ++i) content[i] = static_cast<char>(i * 7 + i / 4096);
    REQUIRE(pwrite(file_, content.data(), len, 0) == static_cast<ssize_t>(len));
  }
  ~File() { close(file_); }
  File(const File &) = delete;
  File &operator=(const File &) = delete;
  int get() const { return file_; }

private:
  char name_[32] = "hostpin-prefault-XXXXXX";
  int file_;
};

void fill(const Alone &memory) {
  for (size_t i = 0; i < memory.size(); i += 64) memory.at()[i] = static_cast<char>(i / 64 * 31 + 1);
}
uint64_t hash(const Alone &memory) {
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < memory.size(); ++i) h = (h ^ static_cast<unsigned char>(memory.at()[i])) * 1099511628211u;
  return h;
}

// From now on the kernel refuses this thread, and those that it starts, MADV_POPULATE_READ and MADV_POPULATE_WRITE, as one
// before 5.14 does.
bool refuse_populate() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 22, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 23, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof(rules) / sizeof(rules[0]), rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return false;
  return madvise(nullptr, 0, 23) != 0 && errno == EINVAL;
}

// How many pages are present that nobody else has mapped, and that are not a file's.
size_t own_pages(const char *start, size_t len) {
  std::vector<uint64_t> entries(len / page());
  const int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  REQUIRE(map >= 0);
  const size_t bytes = entries.size() * sizeof(uint64_t);
  const auto at = static_cast<off_t>(reinterpret_cast<uintptr_t>(start) / page() * sizeof(uint64_t));
  REQUIRE(pread(map, entries.data(), bytes, at) == static_cast<ssize_t>(bytes));
  close(map);
  return static_cast<size_t>(std::count_if(entries.begin(), entries.end(), [](uint64_t entry) {
    return (entry >> 63 & 1) && !(entry >> 61 & 1) && (entry >> 56 & 1);
  }));
}
size_t own_pages(const Alone &memory) { return own_pages(memory.at(), memory.size()); }

// A process that has what this one had, until it is gone.
class Child {
public:
  Child() : process_(fork()) {
    if (process_ == 0)
      for (;;) pause();
    REQUIRE(process_ > 0);
  }
  ~Child() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  Child(const Child &) = delete;
  Child &operator=(const Child &) = delete;

private:
  pid_t process_;
};

// Registers, on a thread of its own that has the newer calls or has not.
int32_t pin(void *ptr, size_t len, uint32_t flags, bool old_kernel) {
  int32_t status = INT32_MIN;
  std::thread([&] {
    if (!old_kernel || refuse_populate()) status = hp_register(ptr, len, flags);
  }).join();
  return status;
}

}  // namespace

TEST_CASE("pages are present after a registration that asks for it, and only those of the range") {
  const Fresh fresh;
  const bool old_kernel = GENERATE(false, true);
  const size_t len = GENERATE(page(), 3 * page(), 130 * kMiB);
  CAPTURE(old_kernel, len);
  const Alone memory(len + 2 * page());
  REQUIRE(pin(memory.at(page() + 1), len - 2, HP_REGISTER_REQUIRED, old_kernel) == HP_OK);
  CHECK(memory.resident() == 0);
  REQUIRE(hp_unregister(memory.at(page() + 1)) == HP_OK);
  REQUIRE(pin(memory.at(page() + 1), len - 2, kPrefault, old_kernel) == HP_OK);
  CHECK(memory.resident() == len);  // the zero page, which a read would have given, does not count
  CHECK(hps_live_registrations() == 1);
  CHECK(std::all_of(memory.at(), memory.at(memory.size()), [](char c) { return c == 0; }));
  REQUIRE(hp_unregister(memory.at(page() + 1)) == HP_OK);
}

TEST_CASE("shared memory is made present too, where it can only be read as well") {
  const Fresh fresh("attribute=100:1");
  const int protection = GENERATE(PROT_READ, PROT_READ | PROT_WRITE);
  const size_t len = 8 * kMiB;
  const int file = memfd_create("prefault", MFD_CLOEXEC);
  REQUIRE(ftruncate(file, static_cast<off_t>(len)) == 0);
  const Alone memory(len, protection, MAP_SHARED, file);
  REQUIRE(hp_register(memory.at(), len, kPrefault) == HP_OK);
  CHECK(memory.resident() == len);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
  close(file);
}

TEST_CASE("no byte changes") {
  const Fresh fresh;
  const bool old_kernel = GENERATE(false, true);
  const uint32_t flags = GENERATE(0u, HP_REGISTER_HUGEPAGES);
  const Alone memory(8 * kMiB);
  fill(memory);
  std::memset(memory.at(2 * kMiB), 0, 2 * kMiB);
  const uint64_t before = hash(memory);
  REQUIRE(madvise(memory.at(2 * kMiB), 2 * kMiB, MADV_DONTNEED) == 0);  // comes back as zeros
  REQUIRE(pin(memory.at(), memory.size(), kPrefault | flags, old_kernel) == HP_OK);
  CHECK(hash(memory) == before);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("what other threads write meanwhile is not lost") {
  const Fresh fresh;
  const bool old_kernel = GENERATE(false, true);
  const size_t pages = 4096;
  const Alone memory(pages * page());
  std::atomic<bool> end{false};
  std::atomic<uint32_t> rounds{0};
  std::vector<std::thread> writers;
  for (int t = 0; t < 2; ++t)
    writers.emplace_back([&] {
      // The first byte of each page, which is the one that a touch would write.
      for (; !end; ++rounds)
        for (size_t i = 0; i < pages; ++i) __atomic_fetch_add(memory.at(i * page()), 1, __ATOMIC_RELAXED);
    });
  for (int i = 0; i < 20; ++i) {
    CHECK(pin(memory.at(), memory.size(), kPrefault, old_kernel) == HP_OK);
    CHECK(hp_unregister(memory.at()) == HP_OK);
  }
  end = true;
  for (auto &w : writers) w.join();
  const auto expected = static_cast<char>(rounds.load());
  size_t wrong = 0;
  for (size_t i = 0; i < pages; ++i) wrong += *memory.at(i * page()) != expected;
  CHECK(wrong == 0);
}

TEST_CASE("a mapping that is read-only is read, and not written") {
  const Fresh fresh("attribute=100:1");
  const File file(4 * kMiB);
  const Alone memory(4 * kMiB, PROT_READ, MAP_PRIVATE, file.get());
  const uint64_t before = hash(memory);
  REQUIRE(madvise(memory.at(), memory.size(), MADV_DONTNEED) == 0);
  const bool old_kernel = GENERATE(false, true);
  REQUIRE(pin(memory.at(), memory.size(), kPrefault, old_kernel) == HP_OK);
  if (!old_kernel) CHECK(memory.resident() == memory.size());
  CHECK(memory.bytes("Anonymous:") == 0);
  CHECK(hash(memory) == before);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("memory without a name that is read-only is not written on an old kernel either") {
  const Fresh fresh("attribute=100:1");
  const Alone memory(kMiB, PROT_READ);
  REQUIRE(pin(memory.at(), memory.size(), kPrefault, true) == HP_OK);
  CHECK(memory.resident() == 0);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("a private mapping of a file, and the file, keep their content") {
  const Fresh fresh;
  const bool old_kernel = GENERATE(false, true);
  const File file(4 * kMiB);
  const Alone memory(4 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.get());
  const Alone original(4 * kMiB, PROT_READ, MAP_SHARED, file.get());
  const uint64_t before = hash(original);
  REQUIRE(pin(memory.at(), memory.size(), kPrefault, old_kernel) == HP_OK);
  if (!old_kernel) CHECK(memory.bytes("Anonymous:") == memory.size());  // also those that were in the kernel's cache
  CHECK(hash(memory) == before);
  CHECK(hash(original) == before);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("private memory that was only read gets pages of its own") {
  const Fresh fresh;
  const bool old_kernel = GENERATE(false, true);
  const Alone memory(40 * kMiB);
  size_t sum = 0;
  for (size_t i = 0; i < memory.size(); i += page()) sum += static_cast<unsigned char>(*memory.at(i));
  CHECK(sum == 0);
  REQUIRE(own_pages(memory) == 0);
  REQUIRE(pin(memory.at(), memory.size(), kPrefault, old_kernel) == HP_OK);
  CHECK(own_pages(memory) == memory.size() / page());
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("private memory that a forked child has too gets pages of its own") {
  const Fresh fresh;
  const bool old_kernel = GENERATE(false, true);
  const Alone memory(8 * kMiB);
  fill(memory);
  const uint64_t before = hash(memory);
  const Child child;
  REQUIRE(own_pages(memory) == 0);
  REQUIRE(pin(memory.at(), memory.size(), kPrefault, old_kernel) == HP_OK);
  CHECK(own_pages(memory) == memory.size() / page());
  CHECK(hash(memory) == before);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

// Each of them is a message to all processors that the process runs on: more threads take longer.
TEST_CASE("pages that are replaced are so by one thread") {
  const Fresh fresh;
  const Alone memory(64 * kMiB);
  fill(memory);
  const Child child;
  const Fragmented slow;
  REQUIRE(hp_register(memory.at(), memory.size(), kPrefault) == HP_OK);
  CHECK(slow.threads() == 1);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

// Whether the pages of a file are present the kernel tells only those who may write it.
TEST_CASE("a file of another user is made present") {
  const Fresh fresh("attribute=100:1");
  Dl_info library{};
  REQUIRE(dladdr(reinterpret_cast<void *>(&getpid), &library) != 0);
  const int file = open(library.dli_fname, O_RDONLY | O_CLOEXEC);
  REQUIRE(file >= 0);
  struct stat about {};
  REQUIRE(fstat(file, &about) == 0);
  const Alone memory(static_cast<size_t>(about.st_size) / page() * page(), PROT_READ, MAP_SHARED, file);
  int32_t status = INT32_MIN;
  std::thread([&] {
    setfsuid(65534);  // nobody; of this thread alone, and refused where this user is not root anyway
    status = hp_register(memory.at(), memory.size(), kPrefault);
  }).join();
  CHECK(status == HP_OK);
  CHECK(memory.resident() == memory.size());
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
  close(file);
}

TEST_CASE("a page that is read-only is no reason to only read those beside it") {
  const Fresh fresh("attribute=100:1");
  const bool old_kernel = GENERATE(false, true);
  const size_t pages = 32 * kMiB / page();
  const size_t read_only = GENERATE_COPY(size_t{0}, size_t{1}, pages / 3, pages - 2, pages - 1);
  CAPTURE(old_kernel, read_only);
  const Alone memory(32 * kMiB);
  REQUIRE(mprotect(memory.at(read_only * page()), page(), PROT_READ) == 0);
  REQUIRE(pin(memory.at(), memory.size(), kPrefault, old_kernel) == HP_OK);
  CHECK(own_pages(memory.at(), read_only * page()) == read_only);
  CHECK(own_pages(memory.at(read_only * page()), page()) == 0);
  CHECK(own_pages(memory.at((read_only + 1) * page()), (pages - read_only - 1) * page()) == pages - read_only - 1);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("the holes of a file that is mapped shared get no room on the disk") {
  const Fresh fresh;
  const size_t len = 4 * kMiB;
  const File file(0);
  REQUIRE(ftruncate(file.get(), static_cast<off_t>(len)) == 0);
  const Alone memory(len, PROT_READ | PROT_WRITE, MAP_SHARED, file.get());
  REQUIRE(hp_register(memory.at(), len, kPrefault) == HP_OK);
  struct stat about {};
  REQUIRE(fstat(file.get(), &about) == 0);
  CHECK(about.st_blocks == 0);
  CHECK(memory.resident() == 0);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("a file that is shorter than its mapping is no signal") {
  const Fresh fresh;
  const bool old_kernel = GENERATE(false, true);
  const int kind = GENERATE(MAP_PRIVATE, MAP_SHARED);
  const File file(kMiB);
  const Alone memory(4 * kMiB, PROT_READ | PROT_WRITE, kind, file.get());
  CHECK(pin(memory.at(), memory.size(), kPrefault, old_kernel) == HP_OK);
  CHECK(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("a range with a hole, or without access, is left as it is") {
  const Fresh fresh;
  const bool old_kernel = GENERATE(false, true);
  const size_t len = 4 * kMiB;
  const Alone memory(len);
  SECTION("a hole") {
    REQUIRE(munmap(memory.at(2 * kMiB), page()) == 0);
    CHECK(pin(memory.at(), len, kPrefault, old_kernel) == HP_E_REFUSED);
    CHECK(memory.resident() == 0);
  }
  SECTION("no access") {
    REQUIRE(mprotect(memory.at(2 * kMiB), page(), PROT_NONE) == 0);
    CHECK(pin(memory.at(), len, HP_REGISTER_PREFAULT, old_kernel) >= 0);
    CHECK(memory.resident() == 0);
    CHECK(hp_unregister(memory.at()) == HP_OK);
  }
}

TEST_CASE("each segment is made present before the driver gets it") {
  const Fresh fresh;
  const Alone memory(8 * kMiB);
  static const Alone *seen;
  static size_t resident;
  seen = &memory;
  resident = 0;
  hps_on_call([](const char *function, const void *, size_t, void *) {
    hps_call call{};
    call.function = function;
    if (is_register(call)) resident = seen->resident();
  }, nullptr);
  REQUIRE(hp_register(memory.at(), memory.size(), kPrefault) == HP_OK);
  CHECK(resident == memory.size());
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("huge pages are a wish, and never an error") {
  const Fresh fresh;
  const bool old_kernel = GENERATE(false, true);
  const uint32_t flags = kPrefault | HP_REGISTER_HUGEPAGES;
  SECTION("memory without a name") {
    const Alone other(2 * kMiB);
    const bool known = madvise(other.at(), other.size(), MADV_HUGEPAGE) == 0;
    const Alone memory(8 * kMiB);
    CHECK_FALSE(contains(memory.line("VmFlags:"), " hg"));
    REQUIRE(pin(memory.at(), memory.size(), flags, old_kernel) == HP_OK);
    CHECK(contains(memory.line("VmFlags:"), " hg") == known);
    CHECK(memory.resident() == memory.size());
    REQUIRE(hp_unregister(memory.at()) == HP_OK);
  }
  SECTION("not asked for") {
    const Alone memory(8 * kMiB);
    REQUIRE(pin(memory.at(), memory.size(), kPrefault, old_kernel) == HP_OK);
    CHECK_FALSE(contains(memory.line("VmFlags:"), " hg"));
    REQUIRE(hp_unregister(memory.at()) == HP_OK);
  }
  SECTION("less than a huge page, whose neighbours are not asked for either") {
    const Alone memory(8 * kMiB);
    REQUIRE(pin(memory.at(kMiB), 2 * kMiB, flags, old_kernel) == HP_OK);
    CHECK_FALSE(contains(memory.line("VmFlags:"), " hg"));
    CHECK(memory.resident() == 2 * kMiB);
    REQUIRE(hp_unregister(memory.at(kMiB)) == HP_OK);
  }
  SECTION("a file") {
    const File file(4 * kMiB);
    const Alone memory(4 * kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, file.get());
    REQUIRE(pin(memory.at(), memory.size(), flags, old_kernel) == HP_OK);
    REQUIRE(hp_unregister(memory.at()) == HP_OK);
  }
}

TEST_CASE("huge pages that take too long are given up") {
  const Fresh fresh;
  const Alone memory(256 * kMiB);
  const Fragmented fragmented;
  REQUIRE(hp_register(memory.at(), memory.size(), kPrefault | HP_REGISTER_HUGEPAGES) == HP_OK);
  CHECK(fragmented.asked_for() > 0);
  CHECK(fragmented.asked_for() <= 64 * kMiB);
  CHECK(own_pages(memory) == memory.size() / page());
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}

TEST_CASE("huge pages that take too long are given up for all segments of a registration") {
  const Fresh fresh;
  const Alone memory(256 * kMiB);
  std::vector<hp_range> ranges;
  for (size_t at = 0; at < memory.size(); at += 64 * kMiB) ranges.push_back({at, at + 64 * kMiB - page()});
  const uint32_t flags = kPrefault | HP_REGISTER_HUGEPAGES;
  const Fragmented fragmented;
  SECTION("at once") {
    REQUIRE(hp_register_ranges(memory.at(), ranges.data(), ranges.size(), flags) == HP_OK);
  }
  SECTION("by a job") {
    hp_job_options how{};
    how.struct_size = sizeof(how);
    how.chunk_bytes = 32 * kMiB;
    hp_job *job = nullptr;
    REQUIRE(hp_register_start(memory.at(), ranges.data(), ranges.size(), flags, &how, &job) == HP_OK);
    CHECK(hp_job_wait(job, kNoLimit) == HP_OK);
    hp_job_free(job);
  }
  CHECK(fragmented.asked_for() > 0);
  CHECK(fragmented.asked_for() <= 64 * kMiB);
  REQUIRE(hp_unregister(memory.at()) == HP_OK);
}
