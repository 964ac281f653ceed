// Log lines: to a callback of the application, or to stderr.
#pragma once
#include <cstdint>

namespace hp {

using LogCallback = void (*)(int32_t level, const char *msg, void *user);

void set_log_level(int32_t level) noexcept;
bool log_wanted(int32_t level) noexcept;
void set_log_callback(LogCallback fn, void *user) noexcept;
void log_line(int32_t level, const char *format, ...) noexcept __attribute__((format(printf, 2, 3)));

// True for the first time that `cause` is seen in this process: such causes are logged once.
bool first_time(const char *cause, int64_t detail) noexcept;

}  // namespace hp
