#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <simdjson.h>

#include "codec/json.h"

namespace varda::codec {
namespace {

// Replaces every byte outside of a valid character by U+FFFD, like Go's encoder, so that the output
// is always readable.
std::string mended(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto lead = static_cast<unsigned char>(text[0]);
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (simdjson::validate_utf8(text.substr(0, length))) {
      out += text.substr(0, length);
      text.remove_prefix(std::min(length, text.size()));
    } else {
      out += "\xEF\xBF\xBD";
      text.remove_prefix(1);
    }
  }
  return out;
}

constexpr std::uint64_t in_each_byte(std::uint8_t byte) { return 0x0101010101010101u * byte; }

// True if no character needs escaping, as in most strings; eight bytes at a time. A byte of x is
// zero if the high bit of (x - 0x01..01) & ~x & 0x80..80 is set. Borrows may set further bits,
// which only leads to the slow path.
bool is_plain(std::string_view text) {
  const auto zero = [](std::uint64_t x) { return (x - in_each_byte(1)) & ~x; };
  while (!text.empty()) {
    std::uint64_t word = in_each_byte('a');
    const std::size_t count = std::min(text.size(), sizeof word);
    std::memcpy(&word, text.data(), count);
    const std::uint64_t control = word - in_each_byte(0x20);
    const std::uint64_t special = zero(word ^ in_each_byte('"')) | zero(word ^ in_each_byte('\\'));
    if (((control | special | word) & in_each_byte(0x80)) != 0) return false;
    text.remove_prefix(count);
  }
  return true;
}

void write_string(std::string_view text, std::string& out) {
  if (is_plain(text)) {
    out += '"';
    out += text;
    out += '"';
    return;
  }
  static constexpr char kHex[] = "0123456789abcdef";
  std::string whole;
  if (!simdjson::validate_utf8(text)) text = whole = mended(text);
  out += '"';
  std::size_t plain = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    out.append(text, plain, i - plain);
    plain = i + 1;
    switch (byte) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        out += "\\u00";
        out += kHex[byte >> 4];
        out += kHex[byte & 15];
    }
  }
  out.append(text, plain);
  out += '"';
}

void write_number(double value, std::string& out) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char text[32];
  // A whole number keeps a fraction or gets an exponent, so that it reads back as a double. Plain
  // digits would read as an integer, or fail beyond 64 bits.
  const bool whole = std::trunc(value) == value;
  const auto end =
      !whole ? std::to_chars(text, text + sizeof text, value).ptr
      : std::fabs(value) < 1e15
          ? std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, 1).ptr
          : std::to_chars(text, text + sizeof text, value, std::chars_format::scientific).ptr;
  out.append(text, end);
}

class JsonWriter {
 public:
  JsonWriter(std::string& out, int indent) : out_(out), indent_(indent) {}

  void write(const Json& value, int level) {
    switch (value.type()) {
      case Json::Type::kNull:
        out_ += "null";
        break;
      case Json::Type::kBool:
        out_ += value.as_bool() ? "true" : "false";
        break;
      case Json::Type::kInteger: {
        char text[24];
        out_.append(text, std::to_chars(text, text + sizeof text, value.as_integer()).ptr);
        break;
      }
      case Json::Type::kNumber:
        write_number(value.as_double(), out_);
        break;
      case Json::Type::kString:
        write_string(value.as_string(), out_);
        break;
      case Json::Type::kArray: {
        out_ += '[';
        bool first = true;
        for (const Json& item : value.as_array()) {
          separate(first, level + 1);
          write(item, level + 1);
        }
        close(first, level);
        out_ += ']';
        break;
      }
      case Json::Type::kObject: {
        out_ += '{';
        bool first = true;
        for (const Json::Member& member : value.as_object()) {
          separate(first, level + 1);
          write_string(member.first, out_);
          out_ += indent_ > 0 ? ": " : ":";
          write(member.second, level + 1);
        }
        close(first, level);
        out_ += '}';
        break;
      }
    }
  }

 private:
  void separate(bool& first, int level) {
    if (!first) out_ += ',';
    first = false;
    line(level);
  }
  void close(bool empty, int level) {
    if (!empty) line(level);
  }
  void line(int level) {
    if (indent_ == 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(indent_ * level), ' ');
  }

  std::string& out_;
  const int indent_;
};

}  // namespace

void write_json(const Json& value, std::string& out) { JsonWriter(out, 0).write(value, 0); }

std::string write_json(const Json& value) {
  std::string out;
  write_json(value, out);
  return out;
}

std::string write_json_pretty(const Json& value, int indent) {
  std::string out;
  JsonWriter(out, indent).write(value, 0);
  return out;
}

}  // namespace varda::codec
