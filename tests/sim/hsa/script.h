// A script for a stand-in: "key=value,key=value", numbers in C's notation. A key that nobody knows ends the program,
// because a test whose script has a slip would prove nothing.
#pragma once

#include <atomic>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

namespace sim {

struct Setting {
  const char *key;
  std::atomic<std::uint64_t> *value;
};

[[noreturn]] inline void refuse_script(const char *text) {
  std::fprintf(stderr,
               "stand-in: cannot read the script at \"%s\": want key=number, keys as in the stand-in's header\n", text);
  std::abort();
}

inline const Setting &find_setting(const char *text, std::size_t length, std::span<const Setting> settings) {
  for (const Setting &setting : settings)
    if (std::strlen(setting.key) == length && std::strncmp(setting.key, text, length) == 0) return setting;
  refuse_script(text);
}

inline void apply_script(const char *text, std::span<const Setting> settings) {
  while (*text != '\0') {
    const char *equals = std::strchr(text, '=');
    if (equals == nullptr) refuse_script(text);
    const Setting &setting = find_setting(text, static_cast<std::size_t>(equals - text), settings);
    char *end = nullptr;
    const std::uint64_t number = std::strtoull(equals + 1, &end, 0);
    if (end == equals + 1 || (*end != ',' && *end != '\0')) refuse_script(text);
    setting.value->store(number);
    text = *end == ',' ? end + 1 : end;
  }
}

inline void apply_environment(const char *variable, std::span<const Setting> settings) {
  if (const char *text = std::getenv(variable)) apply_script(text, settings);
}

inline std::uint64_t read_counter(const char *key, std::span<const Setting> counters) {
  return find_setting(key, std::strlen(key), counters).value->load();
}

// The countdown of a "fail at the Nth call": true for that call alone.
inline bool is_turn(std::atomic<std::uint64_t> &countdown) {
  std::uint64_t left = countdown.load();
  while (left != 0)
    if (countdown.compare_exchange_weak(left, left - 1)) return left == 1;
  return false;
}

} // namespace sim
