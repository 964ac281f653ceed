#include "trial.h"

#include <fcntl.h>
#include <hostpin.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>

namespace info {

namespace {

uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

// Private memory of which every page is there. It is unmapped only once it is not pinned.
class Memory {
public:
  explicit Memory(uint64_t bytes)
      : bytes_(bytes), address_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (address_ == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "no memory for the trial pin");
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    for (uint64_t at = 0; at < bytes; at += page) static_cast<volatile char *>(address_)[at] = 1;
  }
  ~Memory() {
    if (!pinned) munmap(address_, bytes_);
  }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;

  void *address() const { return address_; }
  bool pinned = false;

private:
  uint64_t bytes_;
  void *address_;
};

// If memory runs out, the kernel shall end this process and none that does real work.
void volunteer_for_oom() {
  const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  [[maybe_unused]] const ssize_t written = write(fd, "1000", 4);
  close(fd);
}

uint64_t segments_alive() {
  hp_stats stats{};
  stats.struct_size = sizeof(stats);
  return hp_get_stats(&stats) == HP_OK ? stats.segments : 0;
}

void unregister(Memory &memory, Trial &trial) {
  const uint64_t start = now_ns();
  trial.unregister_status = hp_unregister(memory.address());
  trial.unregister_ns = now_ns() - start;
  memory.pinned = trial.unregister_status != HP_OK;
  if (memory.pinned) trial.unregister_message = hp_last_error();
}

// A driver makes its context at the first pin, which can take longer than the pin that is to be measured.
uint64_t start_driver() {
  Memory page(1);
  const uint64_t start = now_ns();
  if (hp_register(page.address(), 1, 0) != HP_OK) return 0;
  const uint64_t end = now_ns();
  page.pinned = hp_unregister(page.address()) != HP_OK;
  return end - start;
}

}  // namespace

double Trial::gib_per_second() const {
  return static_cast<double>(bytes) / (1 << 30) / (static_cast<double>(std::max<uint64_t>(register_ns, 1)) / 1e9);
}

Trial pin_fresh_memory(uint64_t bytes) {
  volunteer_for_oom();
  Trial trial{.bytes = bytes};
  Memory memory(bytes);
  trial.start_ns = start_driver();
  const uint64_t before = segments_alive();
  const uint64_t start = now_ns();
  trial.status = hp_register(memory.address(), bytes, 0);
  trial.register_ns = now_ns() - start;
  if (trial.status != HP_OK) trial.message = hp_last_error();
  // A stuck one holds segments, so they are tried again.
  memory.pinned = trial.status == HP_OK || trial.status == HP_E_STUCK;
  trial.segments = segments_alive() - before;
  if (trial.status >= 0 || memory.pinned) unregister(memory, trial);
  return trial;
}

}  // namespace info
