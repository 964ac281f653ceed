#include "log.h"

#include <hostpin.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <new>

namespace hp {

namespace {

// A callback and its user pointer must be read together, without a lock that a fork could leave taken. So each pair
// that was ever set stays, and one pointer says which is in force.
struct Sink {
  LogCallback fn;
  void *user;
  Sink *next;
};

constinit std::atomic<Sink *> g_sinks{nullptr};
constinit std::atomic<Sink *> g_sink{nullptr};
constinit std::atomic<int32_t> g_level{HP_LOG_WARN};

Sink *sink_for(LogCallback fn, void *user) noexcept {
  for (Sink *s = g_sinks.load(); s; s = s->next)
    if (s->fn == fn && s->user == user) return s;
  Sink *s = new (std::nothrow) Sink{fn, user, g_sinks.load()};
  while (s && !g_sinks.compare_exchange_weak(s->next, s)) {
  }
  return s;
}

const char *level_name(int32_t level) noexcept {
  switch (level) {
    case HP_LOG_ERROR: return "error";
    case HP_LOG_WARN: return "warning";
    case HP_LOG_INFO: return "info";
    default: return "debug";
  }
}

// One write, so that lines of several threads and processes do not mix. A closed stderr is nobody's error: the signal that
// a pipe without a reader raises is taken back, unless one was pending before.
void write_to_stderr(const char *line, size_t length) noexcept {
  sigset_t pipe;
  sigset_t before;
  sigset_t pending;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  sigpending(&pending);
  ssize_t written;
  do written = write(STDERR_FILENO, line, length);
  while (written < 0 && errno == EINTR);
  const timespec now{};
  if (written < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE)) sigtimedwait(&pipe, nullptr, &now);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

void set_log_level(int32_t level) noexcept { g_level.store(level); }

bool log_wanted(int32_t level) noexcept { return level <= g_level.load(std::memory_order_relaxed); }

void set_log_callback(LogCallback fn, void *user) noexcept {
  Sink *s = fn ? sink_for(fn, user) : nullptr;
  g_sink.store(s);
  if (fn && !s) log_line(HP_LOG_ERROR, "out of memory: the log callback could not be set");
}

void log_line(int32_t level, const char *format, ...) noexcept {
  if (!log_wanted(level)) return;
  char line[1200];
  const Sink *sink = g_sink.load();
  int prefix = sink ? 0 : std::snprintf(line, sizeof(line), "hostpin: %s: ", level_name(level));
  va_list args;
  va_start(args, format);
  const int n = std::vsnprintf(line + prefix, sizeof(line) - static_cast<size_t>(prefix) - 1, format, args);
  va_end(args);
  if (n < 0) return;
  for (char *c = line; *c; ++c)
    if (*c == '\n' || *c == '\r') *c = ' ';
  if (sink) return sink->fn(level, line, sink->user);
  size_t length = std::min(static_cast<size_t>(prefix + n), sizeof(line) - 2);
  line[length++] = '\n';
  write_to_stderr(line, length);
}

bool first_time(const char *cause, int64_t detail) noexcept {
  static constinit std::atomic<uint64_t> seen[512];
  uint64_t hash = 14695981039346656037u ^ static_cast<uint64_t>(detail) * 0x9e3779b97f4a7c15u;
  for (const char *c = cause; *c; ++c) hash = (hash ^ static_cast<unsigned char>(*c)) * 1099511628211u;
  hash |= 1;
  for (auto &slot : seen) {
    uint64_t expected = 0;
    if (slot.load(std::memory_order_relaxed) == hash) return false;
    if (slot.compare_exchange_strong(expected, hash)) return true;
    if (expected == hash) return false;
  }
  return false;  // far more causes than codes exist: enough has been said
}

}  // namespace hp
