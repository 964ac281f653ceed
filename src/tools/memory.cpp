#include "memory.h"

#include <fcntl.h>
#include <hostpin.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>

namespace info {

uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

Memory::Memory(uint64_t bytes)
    : bytes_(bytes), address_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
  if (address_ == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "no memory for the trial pin");
}

Memory::~Memory() {
  if (!pinned) munmap(address_, bytes_);
}

void Memory::touch() {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  for (uint64_t at = 0; at < bytes_; at += page) static_cast<volatile char *>(address_)[at] = 1;
}

void volunteer_for_oom() {
  const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  [[maybe_unused]] const ssize_t written = write(fd, "1000", 4);
  close(fd);
}

uint64_t start_driver() {
  Memory page(1);
  const uint64_t start = now_ns();
  if (hp_register(page.address(), 1, 0) != HP_OK) return 0;
  const uint64_t end = now_ns();
  page.pinned = hp_unregister(page.address()) != HP_OK;
  return end - start;
}

}  // namespace info
