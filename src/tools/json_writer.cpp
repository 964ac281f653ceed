#include "json_writer.h"

#include <cmath>
#include <cstdio>

namespace info {

namespace {

// Bytes of the character at the start of `text`, 0 if they are not UTF-8.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  const size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const bool overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xed && byte(1) >= 0xa0;
  const bool too_large = lead == 0xf4 && byte(1) >= 0x90;
  return overlong || surrogate || too_large ? 0 : length;
}

}  // namespace

void JsonWriter::separate() {
  if (!keyed_ && depth_ > 0) text_.append(first_ ? "\n" : ",\n").append(2 * depth_, ' ');
  first_ = keyed_ = false;
}

JsonWriter &JsonWriter::key(std::string_view name) {
  separate();
  quote(name);
  text_ += ": ";
  keyed_ = true;
  return *this;
}

void JsonWriter::begin(char bracket) {
  separate();
  text_ += bracket;
  ++depth_;
  first_ = true;
}

void JsonWriter::end(char bracket) {
  --depth_;
  if (!first_) text_.append("\n").append(2 * depth_, ' ');
  text_ += bracket;
  first_ = false;
  if (depth_ == 0) text_ += '\n';
}

void JsonWriter::value(std::string_view text) {
  separate();
  quote(text);
}

void JsonWriter::value(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", number);
  raw(std::isfinite(number) ? text : "null");
}

void JsonWriter::raw(std::string_view text) {
  separate();
  text_.append(text);
}

void JsonWriter::quote(std::string_view text) {
  text_ += '"';
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text[0]);
    const size_t length = utf8_length(text);
    if (length == 0) {
      text_ += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      (text_ += '\\') += text[0];
    } else if (c < 32) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", c);
      text_ += escape;
    } else {
      text_.append(text.substr(0, length));
    }
    text.remove_prefix(length ? length : 1);
  }
  text_ += '"';
}

}  // namespace info
