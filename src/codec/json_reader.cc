#include "codec/json_reader.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace varda::codec {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// 10^0 … 10^22 are exact doubles. A mantissa below 2^53, multiplied or divided by one, is rounded
// only once.
constexpr std::array<double, 23> kPowers = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                            1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                            1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
constexpr std::uint64_t kExactMax = std::uint64_t{1} << 53;

}  // namespace

void JsonReader::space() {
  while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
}

bool JsonReader::take(char c) {
  if (failed()) return false;
  space();
  if (at_ == end_ || *at_ != c) {
    fail(std::string("expected '") + c + "'");
    return false;
  }
  ++at_;
  return true;
}

void JsonReader::fail(std::string_view what) {
  if (failed()) return;
  error_ = "offset " + std::to_string(at_ - begin_) + ": " + std::string(what);
}

JsonReader::Kind JsonReader::peek() {
  if (failed()) return Kind::kOther;
  space();
  if (at_ == end_) return Kind::kOther;
  switch (*at_) {
    case 'n':
      return Kind::kNull;
    case 't':
    case 'f':
      return Kind::kBool;
    case '"':
      return Kind::kString;
    case '[':
      return Kind::kArray;
    case '{':
      return Kind::kObject;
    default:
      return *at_ == '-' || is_digit(*at_) ? Kind::kNumber : Kind::kOther;
  }
}

bool JsonReader::begin_object() { return first_ = take('{'); }

bool JsonReader::begin_array() { return first_ = take('['); }

bool JsonReader::next(char close) {
  if (failed()) return false;
  space();
  const bool first = std::exchange(first_, false);
  if (at_ != end_ && *at_ == close) {
    ++at_;
    return false;
  }
  if (first) return true;
  if (at_ == end_ || *at_ != ',') {
    fail(std::string("expected ',' or '") + close + "'");
    return false;
  }
  ++at_;
  return true;
}

bool JsonReader::next_item() { return next(']'); }

bool JsonReader::next_member(std::string& name) {
  if (!next('}')) return false;
  name = string();
  return take(':');
}

bool JsonReader::literal(std::string_view literal_text) {
  if (static_cast<std::size_t>(end_ - at_) < literal_text.size() ||
      std::memcmp(at_, literal_text.data(), literal_text.size()) != 0)
    return false;
  at_ += literal_text.size();
  return true;
}

bool JsonReader::boolean() {
  if (peek() == Kind::kBool) {
    if (literal("true")) return true;
    if (literal("false")) return false;
  }
  fail("expected true or false");
  return false;
}

JsonReader::Number JsonReader::number() {
  Number out;
  if (failed()) return out;
  space();
  const char* const start = at_;
  const char* p = at_;
  if (p != end_ && *p == '-') {
    out.negative = true;
    ++p;
  }
  const char* const digits = p;
  std::uint64_t mantissa = 0;
  while (p != end_ && is_digit(*p))
    mantissa = mantissa * 10 + static_cast<std::uint64_t>(*p++ - '0');
  const std::ptrdiff_t whole = p - digits;
  if (whole == 0 || (whole > 1 && *digits == '0')) {
    fail("expected a number");
    return out;
  }
  std::ptrdiff_t fraction = 0;
  if (p != end_ && *p == '.') {
    const char* const point = ++p;
    while (p != end_ && is_digit(*p))
      mantissa = mantissa * 10 + static_cast<std::uint64_t>(*p++ - '0');
    fraction = p - point;
    if (fraction == 0) {
      fail("a number ends in '.'");
      return out;
    }
  }
  const bool has_exponent = p != end_ && (*p == 'e' || *p == 'E');
  if (has_exponent) {
    ++p;
    if (p != end_ && (*p == '+' || *p == '-')) ++p;
    const char* const exponent = p;
    while (p != end_ && is_digit(*p)) ++p;
    if (p == exponent) {
      fail("a number has an exponent without digits");
      return out;
    }
  }
  // Nineteen digits never overflow 64 bits.
  if (whole + fraction <= 19 && !has_exponent) {
    out.integral = fraction == 0;
    out.magnitude = mantissa;
    if (mantissa <= kExactMax || fraction == 0) {
      const double magnitude = fraction <= 22 ? static_cast<double>(mantissa) /
                                                    kPowers[static_cast<std::size_t>(fraction)]
                                              : 0;
      out.value = out.negative ? -magnitude : magnitude;
      at_ = p;
      return out;
    }
  }
  if (std::from_chars(start, p, out.value).ec == std::errc::result_out_of_range) {
    // Underflow to zero is fine; overflow is an error.
    out.value = std::strtod(std::string(start, p).c_str(), nullptr);
    if (std::isinf(out.value)) {
      fail("a number is too large");
      return out;
    }
  }
  if (fraction == 0 && !has_exponent && whole == 20) {
    std::uint64_t exact = 0;
    out.integral = std::from_chars(digits, p, exact).ec == std::errc();
    out.magnitude = exact;
  }
  at_ = p;
  return out;
}

std::string JsonReader::string() {
  if (failed()) return {};
  space();
  const char* const start = at_;
  if (at_ == end_ || *at_ != '"') {
    fail("expected a string");
    return {};
  }
  const char* p = at_ + 1;
  bool plain = true;
  while (p != end_ && *p != '"') {
    const auto byte = static_cast<unsigned char>(*p);
    if (byte == '\\') {
      plain = false;
      if (++p == end_) break;
    } else if (byte < 0x20 || byte >= 0x80) {
      plain = false;
    }
    ++p;
  }
  if (p == end_) {
    fail("a string does not end");
    return {};
  }
  if (plain) {
    at_ = p + 1;
    return std::string(start + 1, p);
  }
  auto parsed = parse_json(std::string_view(start, static_cast<std::size_t>(p + 1 - start)));
  if (!parsed.ok()) {
    fail("a string is not valid: " + parsed.error().message());
    return {};
  }
  at_ = p + 1;
  return parsed->as_string();
}

std::string_view JsonReader::skip() {
  if (peek() == Kind::kOther) {
    fail("expected a value");
    return {};
  }
  const char* const start = at_;
  const char* p = at_;
  std::size_t depth = 0;
  do {
    if (p == end_) {
      fail("the text ends within a value");
      return {};
    }
    if (*p == '"') {
      for (++p; p != end_ && *p != '"'; ++p) {
        if (*p == '\\' && ++p == end_) break;
      }
      if (p == end_) {
        fail("a string does not end");
        return {};
      }
      ++p;
    } else if (*p == '[' || *p == '{') {
      ++depth;
      ++p;
    } else if (*p == ']' || *p == '}') {
      --depth;
      ++p;
    } else if (depth > 0) {
      ++p;
    } else {
      while (p != end_ && std::strchr(",]} \n\t\r", *p) == nullptr) ++p;
    }
  } while (depth > 0);
  at_ = p;
  return std::string_view(start, static_cast<std::size_t>(p - start));
}

Json JsonReader::value() {
  const std::string_view text = skip();
  if (failed()) return {};
  auto parsed = parse_json(text);
  if (!parsed.ok()) {
    at_ -= text.size();
    fail(parsed.error().message());
    return {};
  }
  return std::move(parsed).value();
}

Status JsonReader::finish() {
  if (!failed()) {
    space();
    if (at_ != end_) fail("text follows the value");
  }
  return status();
}

Status JsonReader::status() const {
  if (failed()) return Error(Code::kInvalid, error_);
  return {};
}

}  // namespace varda::codec
