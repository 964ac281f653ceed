// Small text files of the kernel.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <cstddef>

namespace hp {

// Reads a file line by line without the heap. Longer lines are cut.
class Lines {
public:
  explicit Lines(const char *path) noexcept : fd_(open(path, O_RDONLY | O_CLOEXEC)) {}
  ~Lines() {
    if (fd_ >= 0) close(fd_);
  }
  Lines(const Lines &) = delete;
  Lines &operator=(const Lines &) = delete;

  const char *next() noexcept {
    if (fd_ < 0) return nullptr;
    size_t n = 0;
    for (;;) {
      if (at_ == end_) {
        const ssize_t got = read(fd_, buffer_, sizeof(buffer_));
        if (got <= 0) break;
        at_ = 0;
        end_ = static_cast<size_t>(got);
      }
      const char c = buffer_[at_++];
      if (c == '\n') {
        line_[n] = 0;
        return line_;
      }
      if (n + 1 < sizeof(line_)) line_[n++] = c;
    }
    line_[n] = 0;
    return n ? line_ : nullptr;
  }

private:
  int fd_;
  size_t at_ = 0;
  size_t end_ = 0;
  char buffer_[4096];
  char line_[512];
};

}  // namespace hp
