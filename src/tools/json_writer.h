// Writes JSON text. What is written is valid UTF-8 whatever the strings hold.
#pragma once
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace info {

class JsonWriter {
public:
  // In an object each value, and each object or array, has a key first.
  JsonWriter &key(std::string_view name);
  void begin(char bracket);  // '{' or '['
  void end(char bracket);    // '}' or ']'

  void value(std::string_view text);
  void value(const char *text) { value(std::string_view(text)); }
  void value(bool yes) { raw(yes ? "true" : "false"); }
  void value(double number);
  template <std::integral Integer>
  void value(Integer number) { raw(std::to_string(number)); }
  template <class T>
  void value(const std::optional<T> &v) { v ? value(*v) : raw("null"); }
  void null() { raw("null"); }

  std::string take() { return std::move(text_); }

private:
  void raw(std::string_view text);
  void separate();
  void quote(std::string_view text);

  std::string text_;
  size_t depth_ = 0;
  bool first_ = true;   // in its object or array
  bool keyed_ = false;  // a key was just written
};

}  // namespace info
