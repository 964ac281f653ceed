#include "serialize.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include <hostpin.h>

#include "log.h"
#include "mappings.h"

namespace hp {

namespace {

using Clock = std::chrono::steady_clock;

constinit std::mutex process_mutex;

// One file for all, of which each memory object locks a byte of its own. Anybody may lock, so that processes of several
// users can share memory; for a lock that is held out of malice the wait is bounded.
int open_lock_file() noexcept {
  for (const char *path : {"/dev/shm/hostpin.lock", "/tmp/hostpin.lock"}) {
    // Not created where it exists: the kernel may forbid that for another user's file in such a folder.
    int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0 && errno == ENOENT) {
      file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_CREAT | O_EXCL, 0666);
      if (file >= 0)
        fchmod(file, 0666);
      else if (errno == EEXIST)
        file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    }
    if (file >= 0) return file;
  }
  return -1;
}

off_t byte_of(const SharedObject &object) noexcept {
  const uint64_t hash = (object.inode ^ object.device << 40 ^ object.device >> 24) * 0x9e3779b97f4a7c15u;
  return static_cast<off_t>(hash >> 2);
}

bool try_lock(int file, off_t byte) noexcept {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  // Whatever else is wrong with the lock will not become better by waiting.
  return fcntl(file, F_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES);
}

}  // namespace

SharedMemoryLock::SharedMemoryLock(std::span<const Extent> pages, const std::atomic<bool> *stop) noexcept {
  std::array<SharedObject, 16> objects;
  const size_t n = shared_objects(pages.front().start, pages.back().end, objects);
  if (n == 0) return;
  // Others may pin as much before us, one after another.
  const uint64_t gib = (pages.back().end - pages.front().start) >> 30;
  const auto deadline = Clock::now() + std::chrono::seconds(60 + std::min<uint64_t>(2 * gib, 1740));
  auto wanted = [&] { return Clock::now() < deadline && !(stop && *stop); };
  auto nap = [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };
  const auto go_on_beside = [&](const char *who) {
    if (!(stop && *stop) && first_time("serialize", 0))
      log_line(HP_LOG_WARN, "another %s pins shared memory for longer than expected; going on beside it", who);
  };
  process_ = std::unique_lock(process_mutex, std::defer_lock);
  while (!process_.try_lock()) {
    if (!wanted()) {
      go_on_beside("thread");
      return;
    }
    nap();
  }
  if ((file_ = open_lock_file()) < 0) return;
  // In one order in all processes.
  std::array<off_t, 16> bytes;
  std::transform(objects.begin(), objects.begin() + n, bytes.begin(), byte_of);
  std::sort(bytes.begin(), bytes.begin() + n);
  for (size_t i = 0; i < n; ++i)
    while (!try_lock(file_, bytes[i])) {
      if (!wanted()) {
        go_on_beside("process");
        return;
      }
      nap();
    }
}

SharedMemoryLock::~SharedMemoryLock() {
  if (file_ >= 0) close(file_);  // which gives the locks back
}

}  // namespace hp
