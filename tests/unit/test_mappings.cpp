// What the library knows of mappings, asked of the kernel in both of its ways: by mapping (Linux 6.11), and as text.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "catch.h"
#include "mappings.h"
#include "system.h"

namespace {

constexpr size_t kMiB = size_t{1} << 20;
size_t page() { return hp::page_size(); }

// From now on this thread's ioctl() is answered as by a kernel that has no such call.
bool refuse_ioctl() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof(rules) / sizeof(rules[0]), rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return false;
  int unread = 0;
  return ioctl(0, FIONREAD, &unread) != 0 && errno == ENOTTY;
}

// Both ways must say the same; what they say is checked by the tests.
template <class Ask>
auto ask(bool as_text, Ask question) {
  decltype(question()) answer{};
  bool asked = false;
  std::thread([&] {
    if (as_text && !refuse_ioctl()) return;
    answer = question();
    asked = true;
  }).join();
  REQUIRE(asked);
  return answer;
}

uint64_t largest_page(const char *start, size_t len, bool as_text) {
  const auto at = reinterpret_cast<uintptr_t>(start);
  return ask(as_text, [&] { return hp::largest_page(at, at + len); });
}

hp::Mapping mapping_of(const char *start, size_t len, bool as_text) {
  const auto at = reinterpret_cast<uintptr_t>(start);
  return ask(as_text, [&] { return hp::mapping_of(at, at + len); });
}

std::vector<hp::SharedObject> shared_objects(const char *start, size_t len, bool as_text, size_t room = 16) {
  const auto at = reinterpret_cast<uintptr_t>(start);
  return ask(as_text, [&] {
    std::vector<hp::SharedObject> found(room);
    found.resize(hp::shared_objects(at, at + len, found));
    return found;
  });
}

// Memory between pages without access.
class Area {
public:
  explicit Area(size_t len, int protection = PROT_READ | PROT_WRITE, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int file = -1)
      : room_len_(len + 2 * page()),
        room_(static_cast<char *>(mmap(nullptr, room_len_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    REQUIRE(room_ != MAP_FAILED);
    REQUIRE(mmap(at(), len, protection, flags | MAP_FIXED, file, 0) == at());
  }
  ~Area() { munmap(room_, room_len_); }
  Area(const Area &) = delete;
  Area &operator=(const Area &) = delete;
  char *at(size_t offset = 0) const { return room_ + page() + offset; }

private:
  size_t room_len_;
  char *room_;
};

class File {
public:
  File(int file, size_t len) : file_(file) {
    REQUIRE(file_ >= 0);
    REQUIRE(ftruncate(file_, static_cast<off_t>(len)) == 0);
  }
  ~File() { close(file_); }
  File(const File &) = delete;
  File &operator=(const File &) = delete;
  int get() const { return file_; }
  uint64_t inode() const {
    struct stat s {};
    REQUIRE(fstat(file_, &s) == 0);
    return s.st_ino;
  }

private:
  int file_;
};

int temporary_file() {
  char name[] = "hostpin-mappings-XXXXXX";  // in the build folder, which is on a disk
  const int file = mkstemp(name);
  unlink(name);
  return file;
}

// In a filesystem that is memory, in another place than those known by name; -1 where nobody lets us write to one.
int memory_filesystem_file() {
  std::ifstream mounts("/proc/self/mounts");
  for (std::string device, folder, type, rest; mounts >> device >> folder >> type && std::getline(mounts, rest);) {
    if (type != "tmpfs" || folder.starts_with("/dev")) continue;
    std::string name = folder + "/hostpin-mappings-XXXXXX";
    const int file = mkstemp(name.data());
    if (file >= 0) unlink(name.c_str());
    if (file >= 0) return file;
  }
  return -1;
}

// Is it on a filesystem that is memory? The build folder may be.
bool is_memory(int file) {
  struct statfs fs {};
  REQUIRE(fstatfs(file, &fs) == 0);
  return fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC;
}

int shared_memory_file() {
  char name[] = "/dev/shm/hostpin-mappings-XXXXXX";
  const int file = mkstemp(name);
  unlink(name);
  return file;
}

}  // namespace

TEST_CASE("memory without a name") {
  const bool as_text = GENERATE(false, true);
  const Area area(8 * page());
  const hp::Mapping m = mapping_of(area.at(), 8 * page(), as_text);
  CHECK(m.mapped);
  CHECK(m.readable);
  CHECK(m.writable);
  CHECK(m.anonymous);
  CHECK_FALSE(m.file);
  CHECK_FALSE(m.device);
  CHECK(largest_page(area.at(), 4 * page(), as_text) == page());
  CHECK(shared_objects(area.at(), 8 * page(), as_text).empty());
}

TEST_CASE("the stack and the heap are memory without a name on a file") {
  const bool as_text = GENERATE(false, true);
  int on_stack = 0;
  const hp::Mapping stack = mapping_of(reinterpret_cast<char *>(&on_stack), 1, as_text);
  CHECK((stack.mapped && stack.writable && stack.anonymous && !stack.file && !stack.device));
  char *const in_heap = static_cast<char *>(sbrk(0)) - 1;
  const hp::Mapping heap = mapping_of(in_heap, 1, as_text);
  CHECK((heap.mapped && heap.writable && heap.anonymous && !heap.file && !heap.device));
}

TEST_CASE("what cannot be written or read is told for all of the range") {
  const bool as_text = GENERATE(false, true);
  const Area area(8 * page());
  REQUIRE(mprotect(area.at(2 * page()), page(), PROT_READ) == 0);
  REQUIRE(mprotect(area.at(5 * page()), page(), PROT_NONE) == 0);
  CHECK(mapping_of(area.at(), 2 * page(), as_text).writable);
  const hp::Mapping read_only = mapping_of(area.at(), 3 * page(), as_text);
  CHECK((read_only.mapped && read_only.readable && !read_only.writable));
  const hp::Mapping without_access = mapping_of(area.at(), 8 * page(), as_text);
  CHECK((without_access.mapped && !without_access.readable && !without_access.writable && without_access.anonymous));
  const hp::Mapping behind = mapping_of(area.at(6 * page()), 2 * page(), as_text);
  CHECK((behind.mapped && behind.readable && behind.writable));
}

TEST_CASE("a hole anywhere in the range") {
  const bool as_text = GENERATE(false, true);
  const size_t hole = GENERATE(0, 3, 7);
  CAPTURE(hole);
  const Area area(8 * page());
  REQUIRE(munmap(area.at(hole * page()), page()) == 0);
  const hp::Mapping m = mapping_of(area.at(), 8 * page(), as_text);
  CHECK_FALSE((m.mapped || m.readable || m.writable || m.anonymous || m.file || m.device));
  if (hole > 0) CHECK(mapping_of(area.at(), hole * page(), as_text).mapped);
  if (hole < 7) CHECK(mapping_of(area.at((hole + 1) * page()), (7 - hole) * page(), as_text).mapped);
  CHECK_FALSE(mapping_of(area.at(hole * page()), page(), as_text).mapped);
}

TEST_CASE("nothing is mapped at the end of the address space") {
  const bool as_text = GENERATE(false, true);
  CHECK_FALSE(ask(as_text, [] { return hp::mapping_of(UINT64_MAX - 4096 * 4 + 1, UINT64_MAX - 4096 + 1); }).mapped);
}

TEST_CASE("a memfd is memory, and a shared object by its inode") {
  const bool as_text = GENERATE(false, true);
  const File file(memfd_create("a name", MFD_CLOEXEC), 8 * page());
  const Area area(8 * page(), PROT_READ | PROT_WRITE, MAP_SHARED, file.get());
  const hp::Mapping m = mapping_of(area.at(), 8 * page(), as_text);
  CHECK((m.mapped && m.writable && !m.anonymous && !m.file && !m.device));
  const auto objects = shared_objects(area.at(page()), page(), as_text);
  REQUIRE(objects.size() == 1);
  CHECK(objects[0].inode == file.inode());
}

TEST_CASE("a file in /dev/shm is memory, mapped once or several times") {
  const bool as_text = GENERATE(false, true);
  const File file(shared_memory_file(), 8 * page());
  const Area area(8 * page(), PROT_READ | PROT_WRITE, MAP_SHARED, file.get());
  REQUIRE(mprotect(area.at(3 * page()), page(), PROT_READ) == 0);  // makes three mappings of it
  const hp::Mapping m = mapping_of(area.at(), 8 * page(), as_text);
  CHECK((m.mapped && m.readable && !m.writable && !m.anonymous && !m.file && !m.device));
  const auto objects = shared_objects(area.at(), 8 * page(), as_text);
  REQUIRE(objects.size() == 1);
  CHECK(objects[0].inode == file.inode());
}

TEST_CASE("shared memory without a name is an object of its own") {
  const bool as_text = GENERATE(false, true);
  const Area area(2 * page(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);
  const Area other(2 * page(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);
  const hp::Mapping m = mapping_of(area.at(), page(), as_text);
  CHECK((m.mapped && m.writable && !m.file && !m.device));
  const auto a = shared_objects(area.at(), page(), as_text);
  const auto b = shared_objects(other.at(), page(), as_text);
  REQUIRE(a.size() == 1);
  REQUIRE(b.size() == 1);
  CHECK(a[0].inode != b[0].inode);
}

TEST_CASE("a file on a filesystem") {
  const bool as_text = GENERATE(false, true);
  const int kind = GENERATE(MAP_SHARED, MAP_PRIVATE);
  const int protection = GENERATE(PROT_READ, PROT_READ | PROT_WRITE);
  CAPTURE(as_text, kind, protection);
  const File file(temporary_file(), 4 * page());
  const Area area(4 * page(), protection, kind, file.get());
  const hp::Mapping m = mapping_of(area.at(), 4 * page(), as_text);
  CHECK((m.mapped && m.readable && !m.anonymous && !m.device));
  CHECK(m.file == !is_memory(file.get()));
  CHECK(m.writable == (protection != PROT_READ));
  CHECK(shared_objects(area.at(), 4 * page(), as_text).size() == (kind == MAP_SHARED ? 1 : 0));
}

TEST_CASE("a file on a filesystem that is not deleted") {
  const bool as_text = GENERATE(false, true);
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  REQUIRE(file >= 0);
  const Area area(page(), PROT_READ, MAP_PRIVATE, file);
  CHECK(mapping_of(area.at(), page(), as_text).file == !is_memory(file));
  close(file);
}

TEST_CASE("a file in a tmpfs anywhere is memory") {
  const bool as_text = GENERATE(false, true);
  const int memory = memory_filesystem_file();
  if (memory < 0) {
    WARN("no other tmpfs here that can be written to");
    return;
  }
  const File file(memory, 2 * page());
  REQUIRE(is_memory(memory));
  const Area area(2 * page(), PROT_READ | PROT_WRITE, MAP_SHARED, memory);
  const hp::Mapping m = mapping_of(area.at(), 2 * page(), as_text);
  CHECK((m.mapped && m.writable && !m.anonymous && !m.file && !m.device));
}

TEST_CASE("what the kernel maps by itself: pages that are no memory of the process, and code") {
  const bool as_text = GENERATE(false, true);
  const std::string name = GENERATE("[vvar", "[vdso]");
  std::ifstream maps("/proc/self/maps");
  size_t found = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(name) == line.npos) continue;
    ++found;
    const hp::Mapping m = mapping_of(reinterpret_cast<char *>(std::stoull(line, nullptr, 16)), page(), as_text);
    CHECK((m.mapped && m.readable && !m.file && !m.anonymous));
    CHECK(m.device == (name == "[vvar"));
  }
  CHECK(found > 0);
}

TEST_CASE("the first segment of System V, with inode 0, is a shared object") {
  const bool as_text = GENERATE(false, true);
  const auto objects = ask(as_text, [] {
    unshare(CLONE_NEWIPC);  // where that is allowed, so that it is the first
    const int segment = shmget(IPC_PRIVATE, page(), IPC_CREAT | 0600);
    void *const memory = segment < 0 ? MAP_FAILED : shmat(segment, nullptr, 0);
    if (segment >= 0) shmctl(segment, IPC_RMID, nullptr);
    std::vector<hp::SharedObject> seen(16);
    if (memory == MAP_FAILED) return seen;
    const auto at = reinterpret_cast<uintptr_t>(memory);
    seen.resize(hp::shared_objects(at, at + page(), seen));
    if (seen.size() == 1) seen[0].inode -= static_cast<uint64_t>(segment);
    shmdt(memory);
    return seen;
  });
  REQUIRE(objects.size() == 1);
  CHECK(objects[0].inode == 0);
}

TEST_CASE("several objects in one range, and room for fewer") {
  const bool as_text = GENERATE(false, true);
  const File first(memfd_create("first", MFD_CLOEXEC), page());
  const File second(memfd_create("second", MFD_CLOEXEC), page());
  const Area area(4 * page());
  const auto map = [&](size_t at, const File &file) {
    return mmap(area.at(at * page()), page(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(), 0) != MAP_FAILED;
  };
  REQUIRE((map(0, first) && map(2, second) && map(3, first)));
  const auto objects = shared_objects(area.at(), 4 * page(), as_text);
  REQUIRE(objects.size() == 2);
  CHECK(objects[0].inode == first.inode());
  CHECK(objects[1].inode == second.inode());
  CHECK(shared_objects(area.at(), 4 * page(), as_text, 1).size() == 1);
  CHECK_FALSE(mapping_of(area.at(), 4 * page(), as_text).anonymous);
  CHECK(mapping_of(area.at(page()), page(), as_text).anonymous);
}

TEST_CASE("a device") {
  const bool as_text = GENERATE(false, true);
  const int zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
  REQUIRE(zero >= 0);
  const Area area(2 * page(), PROT_READ | PROT_WRITE, MAP_SHARED, zero);
  close(zero);
  const hp::Mapping m = mapping_of(area.at(), page(), as_text);
  CHECK((m.mapped && !m.device && !m.file));  // that one is memory like any other
}

// Needs pages that the machine may not be able to give: then there is nothing to look at.
TEST_CASE("huge pages of their own") {
  const char *count = "/proc/sys/vm/nr_hugepages";
  std::string before;
  std::getline(std::ifstream(count), before);
  std::ofstream(count) << std::atoi(before.c_str()) + 2;
  {
    void *base = mmap(nullptr, 4 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (base != MAP_FAILED) {
      const bool as_text = GENERATE(false, true);
      const hp::Mapping m = mapping_of(static_cast<char *>(base), 4 * kMiB, as_text);
      CHECK((m.mapped && m.writable && !m.file && !m.device));
      CHECK(largest_page(static_cast<char *>(base), 4 * kMiB, as_text) == 2 * kMiB);
      munmap(base, 4 * kMiB);
    } else {
      WARN("no huge pages here: " << std::string(strerror(errno)));
    }
  }
  std::ofstream(count) << before;
}

TEST_CASE("what one pin may have is known of the kernels that refuse more") {
  const uint64_t gib = uint64_t{1} << 30;
  for (unsigned minor : {11u, 12u, 13u}) {
    CHECK(hp::kernel_pin_limit({6, minor}) > 0);
    CHECK(hp::kernel_pin_limit({6, minor}) < 2 * gib);
  }
  for (const hp::KernelVersion other : {hp::KernelVersion{6, 10}, {6, 14}, {6, 1}, {6, 130}, {5, 11}, {5, 12}, {7, 12}, {0, 0}})
    CHECK(hp::kernel_pin_limit(other) == 0);
  CHECK(hp::kernel_version().major >= 4);
}
