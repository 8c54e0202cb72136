#include "dataset/json_stream.h"

#include <array>
#include <cstring>

#include "codec/digest.h"
#include "dataset/format.h"
#include "dataset/internal/scanner.h"

namespace varda::dataset {
namespace {

constexpr std::array<std::string_view, 3> kLiterals = {"true", "false", "null"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

std::string shown(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte > 0x20 && byte < 0x7F) return std::string("'") + c + "'";
  return "byte 0x" + codec::hex(std::string_view(&c, 1));
}

}  // namespace

void JsonStream::restart() {
  const std::uint64_t lines = lines_;
  state_ = State::kBegin;
  open_.clear();
  is_name_ = low_half_ = cut_ = false;
  utf8_left_ = hex_left_ = 0;
  text_.clear();
  error_.clear();
  error_at_ = 0;
  lines_ = lines;
}

void JsonStream::fail(std::string_view why, std::uint64_t at) {
  error_ = why;
  error_at_ = at;
}

void JsonStream::keep(std::string_view bytes) {
  if (open_.size() > text_depth_) return;
  const std::size_t room = kTextBytesMax - text_.size();
  if (bytes.size() > room) cut_ = true;
  text_.append(bytes.substr(0, room));
}

/// The number of leading string bytes without special characters.
std::size_t JsonStream::plain_run(std::string_view bytes) const {
  std::size_t size = 0;
  // Eight at a time: none below 0x20 or above 0x7F, no quote, no backslash.
  constexpr std::uint64_t kOnes = 0x0101010101010101, kHighs = 0x8080808080808080;
  const auto has_zero = [&](std::uint64_t word) { return (word - kOnes) & ~word & kHighs; };
  while (bytes.size() - size >= 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + size, 8);
    if (((word | (word - kOnes * 0x20)) & kHighs) != 0 || has_zero(word ^ kOnes * '"') != 0 ||
        has_zero(word ^ kOnes * '\\') != 0)
      break;
    size += 8;
  }
  while (size < bytes.size()) {
    const auto c = static_cast<unsigned char>(bytes[size]);
    if (c < 0x20 || c >= 0x80 || c == '"' || c == '\\') break;
    ++size;
  }
  return size;
}

void JsonStream::feed(std::string_view bytes, std::uint64_t at, Listener& listener) {
  for (std::size_t i = 0; i < bytes.size() && error_.empty();) {
    if (state_ == State::kString && utf8_left_ == 0) {
      const std::size_t run = plain_run(bytes.substr(i));
      if (run > 0) {
        keep(bytes.substr(i, run));
        i += run;
        continue;
      }
    }
    take(bytes[i], at + i, listener);
    ++i;
  }
}

bool JsonStream::end(Listener& listener) {
  if (!error_.empty()) return false;
  switch (state_) {
    case State::kZero:
    case State::kInteger:
    case State::kFraction:
    case State::kExponentDigits:
      end_scalar(Kind::kNumber, listener);
      break;
    default:
      break;
  }
  return state_ == State::kDone;
}

void JsonStream::end_scalar(Kind kind, Listener& listener) {
  state_ = open_.empty() ? State::kDone : State::kAfter;
  listener.end(open_.size(), kind, text_, cut_);
  text_.clear();
  cut_ = false;
}

void JsonStream::end_container(char c, std::uint64_t at, Listener& listener) {
  if (open_.empty() || (c == '}') != (open_.back() == '{'))
    return fail(std::string("'") + c + "' without an opening bracket", at);
  const Kind kind = open_.back() == '{' ? Kind::kObject : Kind::kArray;
  open_.pop_back();
  state_ = open_.empty() ? State::kDone : State::kAfter;
  listener.end(open_.size(), kind, {}, false);
}

void JsonStream::begin_value(char c, std::uint64_t at, Listener& listener) {
  if (c == '{' || c == '[') {
    if (open_.size() >= kJsonDepthMax)
      return fail("nested deeper than " + std::to_string(kJsonDepthMax), at);
    listener.begin(open_.size(), c == '{' ? Kind::kObject : Kind::kArray, at, lines_);
    open_ += c;
    state_ = c == '{' ? State::kNameOrEnd : State::kValueOrEnd;
  } else if (c == '"') {
    listener.begin(open_.size(), Kind::kString, at, lines_);
    is_name_ = false;
    state_ = State::kString;
  } else if (c == '-' || is_digit(c)) {
    listener.begin(open_.size(), Kind::kNumber, at, lines_);
    state_ = c == '-' ? State::kMinus : c == '0' ? State::kZero : State::kInteger;
    keep(std::string_view(&c, 1));
  } else if (c == 't' || c == 'f' || c == 'n') {
    listener.begin(open_.size(), Kind::kOther, at, lines_);
    literal_ = c == 't' ? 0 : c == 'f' ? 1 : 2;
    literal_at_ = 1;
    state_ = State::kLiteral;
  } else {
    fail(shown(c) + " where a value is expected", at);
  }
}

void JsonStream::take(char c, std::uint64_t at, Listener& listener) {
  switch (state_) {
    case State::kString:
    case State::kEscape:
    case State::kHex:
    case State::kLowEscape:
    case State::kLowU:
      return string_byte(static_cast<unsigned char>(c), at, listener);
    case State::kMinus:
    case State::kZero:
    case State::kInteger:
    case State::kPoint:
    case State::kFraction:
    case State::kExponent:
    case State::kExponentSign:
    case State::kExponentDigits:
      if (number_byte(c, at, listener)) return;
      break;  // the number has ended; the byte after it is handled below
    case State::kLiteral: {
      const std::string_view word = kLiterals[literal_];
      if (c != word[literal_at_])
        return fail(shown(c) + " is unexpected in " + std::string(word), at);
      if (++literal_at_ == word.size()) end_scalar(Kind::kOther, listener);
      return;
    }
    default:
      break;
  }
  if (is_blank(c)) {
    if (c == '\n') ++lines_;
    return;
  }
  switch (state_) {
    case State::kValueOrEnd:
      if (c == ']') return end_container(c, at, listener);
      [[fallthrough]];
    case State::kBegin:
    case State::kValue:
      return begin_value(c, at, listener);
    case State::kNameOrEnd:
      if (c == '}') return end_container(c, at, listener);
      [[fallthrough]];
    case State::kName:
      if (c != '"') return fail(shown(c) + " where a name in quotes is expected", at);
      is_name_ = true;
      state_ = State::kString;
      return;
    case State::kColon:
      if (c != ':') return fail(shown(c) + " where ':' is expected", at);
      state_ = State::kValue;
      return;
    case State::kAfter:
      if (c == '}' || c == ']') return end_container(c, at, listener);
      if (c != ',') return fail(shown(c) + " where ',' or the end is expected", at);
      state_ = open_.back() == '{' ? State::kName : State::kValue;
      return;
    default:
      return fail(shown(c) + " after the end", at);
  }
}

void JsonStream::string_byte(unsigned char c, std::uint64_t at, Listener& listener) {
  const char plain = static_cast<char>(c);
  switch (state_) {
    case State::kEscape:
      if (c == 'u') {
        state_ = State::kHex;
        hex_left_ = 4;
        hex_ = 0;
      } else if (std::string_view("\"\\/bfnrt").find(plain) != std::string_view::npos) {
        state_ = State::kString;
      } else {
        return fail(shown(plain) + " is no valid escape after '\\'", at);
      }
      break;
    case State::kHex: {
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return fail(shown(plain) + " where a hex digit is expected", at);
      hex_ = static_cast<std::uint16_t>(hex_ << 4 | digit);
      if (--hex_left_ > 0) break;
      const bool high = hex_ >= 0xD800 && hex_ < 0xDC00, low = hex_ >= 0xDC00 && hex_ < 0xE000;
      if (low != low_half_) return fail("half of a surrogate pair", at);
      low_half_ = false;
      state_ = high ? State::kLowEscape : State::kString;
      break;
    }
    case State::kLowEscape:
      if (c != '\\') return fail("half of a surrogate pair", at);
      state_ = State::kLowU;
      break;
    case State::kLowU:
      if (c != 'u') return fail("half of a surrogate pair", at);
      low_half_ = true;
      state_ = State::kHex;
      hex_left_ = 4;
      hex_ = 0;
      break;
    default:
      if (utf8_left_ > 0) {
        if (c < utf8_low_ || c > utf8_high_) return fail("no UTF-8: " + shown(plain), at);
        utf8_low_ = 0x80;
        utf8_high_ = 0xBF;
        --utf8_left_;
      } else if (c == '"') {
        if (!is_name_) return end_scalar(Kind::kString, listener);
        state_ = State::kColon;
        listener.name(open_.size(), text_, cut_);
        text_.clear();
        cut_ = false;
        return;
      } else if (c == '\\') {
        state_ = State::kEscape;
      } else if (c < 0x20) {
        return fail(c == '\n' ? "a line break inside a string" : shown(plain) + " inside a string",
                    at);
      } else if (c >= 0x80) {
        // RFC 3629: no overlong forms, no surrogates, nothing beyond U+10FFFF.
        if (c < 0xC2 || c > 0xF4) return fail("no UTF-8: " + shown(plain), at);
        utf8_left_ = c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
        utf8_low_ = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
        utf8_high_ = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
      }
  }
  keep(std::string_view(&plain, 1));
}

/// False if the number ended before this byte.
bool JsonStream::number_byte(char c, std::uint64_t at, Listener& listener) {
  const auto go = [&](State next) {
    state_ = next;
    keep(std::string_view(&c, 1));
    return true;
  };
  switch (state_) {
    case State::kMinus:
      if (is_digit(c)) return go(c == '0' ? State::kZero : State::kInteger);
      break;
    case State::kInteger:
      if (is_digit(c)) return go(State::kInteger);
      [[fallthrough]];
    case State::kZero:
      if (c == '.') return go(State::kPoint);
      if (c == 'e' || c == 'E') return go(State::kExponent);
      end_scalar(Kind::kNumber, listener);
      return false;
    case State::kPoint:
      if (is_digit(c)) return go(State::kFraction);
      break;
    case State::kFraction:
      if (is_digit(c)) return go(State::kFraction);
      if (c == 'e' || c == 'E') return go(State::kExponent);
      end_scalar(Kind::kNumber, listener);
      return false;
    case State::kExponent:
      if (c == '+' || c == '-') return go(State::kExponentSign);
      [[fallthrough]];
    case State::kExponentSign:
      if (is_digit(c)) return go(State::kExponentDigits);
      break;
    default:
      if (is_digit(c)) return go(State::kExponentDigits);
      end_scalar(Kind::kNumber, listener);
      return false;
  }
  fail(shown(c) + " where a digit is expected", at);
  return true;
}

codec::Json JsonStream::save() const {
  return Json::object({{"state", static_cast<int>(state_)},
                       {"open", open_},
                       {"isName", is_name_ ? 1 : 0},
                       {"utf8Left", unsigned{utf8_left_}},
                       {"utf8Low", unsigned{utf8_low_}},
                       {"utf8High", unsigned{utf8_high_}},
                       {"hexLeft", unsigned{hex_left_}},
                       {"hex", unsigned{hex_}},
                       {"lowHalf", low_half_ ? 1 : 0},
                       {"literal", unsigned{literal_}},
                       {"literalAt", unsigned{literal_at_}},
                       {"lines", lines_},
                       {"text", codec::base64(text_)},
                       {"cut", cut_ ? 1 : 0},
                       {"error", error_},
                       {"errorAt", error_at_}});
}

Status JsonStream::restore(const codec::Json& saved) {
  Saved in(saved);
  state_ = static_cast<State>(in.number("state", static_cast<std::uint64_t>(State::kLast)));
  open_ = in.text("open", kJsonDepthMax);
  is_name_ = in.flag("isName");
  utf8_left_ = static_cast<std::uint8_t>(in.number("utf8Left", 3));
  utf8_low_ = static_cast<std::uint8_t>(in.number("utf8Low", 255));
  utf8_high_ = static_cast<std::uint8_t>(in.number("utf8High", 255));
  hex_left_ = static_cast<std::uint8_t>(in.number("hexLeft", 4));
  hex_ = static_cast<std::uint16_t>(in.number("hex", 0xFFFF));
  low_half_ = in.flag("lowHalf");
  literal_ = static_cast<std::uint8_t>(in.number("literal", kLiterals.size() - 1));
  literal_at_ = static_cast<std::uint8_t>(in.number("literalAt", 5));
  lines_ = in.number("lines");
  text_ = in.bytes("text", kTextBytesMax);
  cut_ = in.flag("cut");
  error_ = in.text("error");
  error_at_ = in.number("errorAt");
  TRY_VOID(in.status());
  const bool inside =
      state_ == State::kAfter || state_ == State::kName || state_ == State::kNameOrEnd;
  if (open_.find_first_not_of("{[") != std::string::npos || (inside && open_.empty()) ||
      (state_ == State::kLiteral && literal_at_ >= kLiterals[literal_].size())) {
    return Error(Code::kCorrupt, "the saved JSON parser state is invalid");
  }
  return {};
}

}  // namespace varda::dataset
