// What a call has to say, and what this thread's last call said.
#pragma once
#include <cstdint>

namespace hp {

// Text in a fixed buffer: written without the heap, cut where it is too long.
class Text {
public:
  Text() noexcept { text_[0] = 0; }  // and leaves the rest alone: this is made in every call
  const char *c_str() const noexcept { return text_; }
  bool empty() const noexcept { return text_[0] == 0; }
  void clear() noexcept { text_[length_ = 0] = 0; }
  Text &add(const char *format, ...) noexcept __attribute__((format(printf, 2, 3)));
  char *data() noexcept { return text_; }  // to be filled as a C string of at most capacity() bytes
  static constexpr unsigned capacity() noexcept { return sizeof(text_); }

private:
  unsigned length_ = 0;
  char text_[1000];
};

// The outcome of a call in words, and the vendor's code if a driver was involved.
struct Report {
  int64_t native = 0;
  Text text;
};

// Keeps a report for hp_last_error() of this thread; where there is no memory for it, the older one stays.
void remember(int32_t status, const Report &report) noexcept;
const char *last_error() noexcept;
int64_t last_native_error() noexcept;
const char *status_text(int32_t status) noexcept;

}  // namespace hp
