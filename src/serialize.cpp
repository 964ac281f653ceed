#include "serialize.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include <hostpin.h>

#include "log.h"
#include "mappings.h"

namespace hp {

namespace {

using Clock = std::chrono::steady_clock;

// One file for all, of which each memory object locks a byte of its own. Anybody may lock, so that processes of several
// users can share memory; for a lock that is held out of malice the wait is bounded.
constexpr const char *kPaths[] = {"/dev/shm/hostpin.lock", "/tmp/hostpin.lock"};

// Guards the list of locks of this process and what is in them. Never held while anything is waited for.
constinit std::mutex mutex;

int open_or_create(const char *path) noexcept {
  // Not created where it exists: the kernel may forbid that for another user's file in such a folder.
  int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (file >= 0 || errno != ENOENT) return file;
  file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_CREAT | O_EXCL, 0666);
  if (file >= 0)
    fchmod(file, 0666);
  else if (errno == EEXIST)
    file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  return file;
}

// Where it was removed, those who come later lock another file.
bool in_place(int file, const char *path) noexcept {
  struct stat opened;
  struct stat there;
  return fstat(file, &opened) == 0 && lstat(path, &there) == 0 && opened.st_dev == there.st_dev &&
         opened.st_ino == there.st_ino;
}

off_t byte_of(const SharedObject &object) noexcept {
  const uint64_t hash = (object.inode ^ object.device << 40 ^ object.device >> 24) * 0x9e3779b97f4a7c15u;
  return static_cast<off_t>(hash >> 2);
}

std::vector<off_t> bytes_of(std::span<const Extent> stretches) {
  std::vector<off_t> bytes;
  SharedObject few[16];
  for (const Extent &stretch : stretches) {
    std::span<SharedObject> objects(few);
    std::vector<SharedObject> many;
    size_t n;
    while ((n = shared_objects(stretch.start, stretch.end, objects)) == objects.size()) {
      many.resize(2 * n);
      objects = many;
    }
    for (const SharedObject &object : objects.first(n)) bytes.push_back(byte_of(object));
  }
  std::sort(bytes.begin(), bytes.end());
  bytes.erase(std::unique(bytes.begin(), bytes.end()), bytes.end());
  return bytes;
}

// 0, EAGAIN while another process has it, or what is wrong with the file.
int set_lock(int file, off_t byte, short type) noexcept {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  if (fcntl(file, F_SETLK, &lock) == 0) return 0;
  return errno == EACCES || errno == EINTR ? EAGAIN : errno;
}

// Others may pin as much before us, one after another.
Clock::duration patience(std::span<const Extent> stretches) noexcept {
  uint64_t bytes = 0;
  for (const Extent &stretch : stretches) bytes += stretch.size();
  return std::chrono::seconds(60 + std::min<uint64_t>(2 * (bytes >> 30), 1740));
}

void warn_of_no_lock(int error) noexcept {
  if (first_time("serialize without a lock", 0))
    log_line(HP_LOG_WARN,
             "HP_REGISTER_SERIALIZE has no effect, as neither %s nor %s can be opened and locked (%s): a driver may refuse "
             "shared memory that several processes pin at once; see that every user can read and write one of these files",
             kPaths[0], kPaths[1], std::strerror(error));
}

void warn_of_no_turn() noexcept {
  if (first_time("serialize", 0))
    log_line(HP_LOG_WARN, "others pin the same shared memory for longer than expected; going on beside them");
}

}  // namespace

constinit SharedMemoryLock *SharedMemoryLock::first_ = nullptr;

SharedMemoryLock::SharedMemoryLock(std::span<const Extent> stretches, const std::atomic<bool> *stop) noexcept {
  try {
    bytes_ = bytes_of(stretches);
  } catch (...) {
    error_ = ENOMEM;
    return;
  }
  if (bytes_.empty()) return;
  enlist();
  const auto deadline = Clock::now() + patience(stretches);
  const auto stopped = [stop] { return stop && *stop; };
  while ((error_ = try_all()) == EAGAIN && Clock::now() < deadline && !stopped())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (error_) release();
  if (stopped()) error_ = 0;
}

SharedMemoryLock::~SharedMemoryLock() {
  release();
  if (error_ == EAGAIN)
    warn_of_no_turn();
  else if (error_)
    warn_of_no_lock(error_);
}

// 0 with all of them held, EAGAIN while somebody else has one, or why there is no lock to be had.
int SharedMemoryLock::try_all() noexcept {
  const std::lock_guard guard(mutex);
  if (file_ < 0)
    if (const int error = find_file()) return error;
  for (; held_ < bytes_.size(); ++held_) {
    if (held_here(bytes_[held_])) return EAGAIN;
    if (const int error = set_lock(file_, bytes_[held_], F_WRLCK)) return error;
  }
  if (in_place(file_, path_)) return 0;
  drop_file();  // only now, so that those who hold it have been waited for
  return EAGAIN;
}

// Record locks are the process's, not a thread's.
bool SharedMemoryLock::held_here(off_t byte) noexcept {
  for (const SharedMemoryLock *lock = first_; lock; lock = lock->next_)
    if (std::binary_search(lock->bytes_.data(), lock->bytes_.data() + lock->held_, byte)) return true;
  return false;
}

// A file is opened once in a process: to close one of several descriptors would end all locks on it.
int SharedMemoryLock::find_file() noexcept {
  for (const SharedMemoryLock *lock = first_; lock; lock = lock->next_) {
    if (lock->file_ < 0 || !in_place(lock->file_, lock->path_)) continue;
    path_ = lock->path_;
    file_ = lock->file_;
    return 0;
  }
  for (const char *path : kPaths) {
    path_ = path;
    if ((file_ = open_or_create(path)) >= 0) return 0;
  }
  return errno;
}

void SharedMemoryLock::drop_file() noexcept {
  for (; held_ > 0; --held_) set_lock(file_, bytes_[held_ - 1], F_UNLCK);
  const int file = file_;
  file_ = -1;
  for (const SharedMemoryLock *lock = first_; lock; lock = lock->next_)
    if (lock->file_ == file) return;
  if (file >= 0) close(file);
}

void SharedMemoryLock::enlist() noexcept {
  const std::lock_guard guard(mutex);
  next_ = first_;
  first_ = this;
  enlisted_ = true;
}

void SharedMemoryLock::release() noexcept {
  if (!enlisted_) return;
  const std::lock_guard guard(mutex);
  drop_file();
  SharedMemoryLock **at = &first_;
  while (*at != this) at = &(*at)->next_;
  *at = next_;
  enlisted_ = false;
}

}  // namespace hp
