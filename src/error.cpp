#include "error.h"

#include <hostpin.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <new>

namespace hp {

Text &Text::add(const char *format, ...) noexcept {
  va_list args;
  va_start(args, format);
  const int n = std::vsnprintf(text_ + length_, sizeof(text_) - length_, format, args);
  va_end(args);
  if (n > 0) length_ = std::min(length_ + static_cast<unsigned>(n), capacity() - 1);
  return *this;
}

namespace {

// A key of pthread and not thread_local: a thread-local buffer of a library that was opened late is allocated by the
// loader, which ends the process when it cannot. Made without a lock, which a fork could leave taken: who comes second
// throws away what it made.
bool record_key(pthread_key_t &key) noexcept {
  static constinit std::atomic<uint64_t> made{0};  // the key + 1
  uint64_t known = made.load(std::memory_order_acquire);
  if (!known) {
    if (pthread_key_create(&key, [](void *record) { delete static_cast<Report *>(record); }) != 0) return false;
    if (made.compare_exchange_strong(known, uint64_t{key} + 1)) return true;
    pthread_key_delete(key);
  }
  key = static_cast<pthread_key_t>(known - 1);
  return true;
}

Report *record() noexcept {
  pthread_key_t key;
  return record_key(key) ? static_cast<Report *>(pthread_getspecific(key)) : nullptr;
}

}  // namespace

void remember(int32_t status, const Report &report) noexcept {
  pthread_key_t key;
  if (!record_key(key)) return;
  Report *r = record();
  if (!r) {
    r = new (std::nothrow) Report;
    if (!r) return;
    if (pthread_setspecific(key, r) != 0) {
      delete r;
      return;
    }
  }
  *r = report;
  if (r->text.empty()) r->text.add("%s", status_text(status));
}

const char *last_error() noexcept {
  const Report *r = record();
  return r ? r->text.c_str() : "";
}

int64_t last_native_error() noexcept {
  const Report *r = record();
  return r ? r->native : 0;
}

const char *status_text(int32_t status) noexcept {
  static constexpr struct {
    int32_t status;
    const char *text;
  } kTexts[] = {
      {HP_OK, "done"},
      {HP_PAGEABLE, "not pinned: the memory stays pageable"},
      {HP_FOREIGN, "pinned already by somebody else in this process"},
      {HP_E_INVALID, "invalid argument"},
      {HP_E_EXISTS, "a registration with this base and another length is alive"},
      {HP_E_NOT_FOUND, "no registration has this base"},
      {HP_E_UNAVAILABLE, "no usable backend"},
      {HP_E_REFUSED, "the driver refused"},
      {HP_E_STUCK, "the driver would not release a segment: do not unmap the memory"},
      {HP_E_NO_BOUNDARY, "no cut satisfies block, page and chunk limit"},
      {HP_E_TOO_SMALL, "the array is too small"},
      {HP_E_NO_MEMORY, "out of memory"},
      {HP_E_FORKED, "not possible in a forked child"},
      {HP_E_CANCELLED, "cancelled"},
      {HP_E_TIMEOUT, "the deadline passed; the work goes on"},
      {HP_E_UNSUPPORTED, "this backend cannot do that"},
      {HP_E_BUDGET, "the pin budget would be exceeded"},
  };
  for (const auto &t : kTexts)
    if (t.status == status) return t.text;
  return "unknown status";
}

}  // namespace hp
