// Validates JSON (RFC 8259) in pieces and reports its parts as they pass. Memory does not grow with
// the text, and the state can be saved at any byte.
//
// Debian's libraries that accept pieces (Boost.JSON, yajl) cannot save their state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/json.h"

namespace varda::dataset {

/// Not thread-safe.
class JsonStream {
 public:
  enum class Kind : std::uint8_t { kObject, kArray, kString, kNumber, kOther };

  /// Depth: the number of open arrays and objects around a value or name; 0 for the text itself.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void name(std::size_t /*depth*/, std::string_view /*raw*/, bool /*cut*/) {}
    virtual void begin(std::size_t /*depth*/, Kind /*kind*/, std::uint64_t /*at*/,
                       std::uint64_t /*line*/) {}
    /// `raw`: a string between its quotes, or a number, as written. Beyond kTextBytesMax it is
    /// truncated, and `cut` is set.
    virtual void end(std::size_t /*depth*/, Kind /*kind*/, std::string_view /*raw*/, bool /*cut*/) {
    }
  };
  static constexpr std::size_t kTextBytesMax = 1024;

  /// Texts deeper than `text_depth` are not kept for the listener.
  explicit JsonStream(std::size_t text_depth = 0) : text_depth_(text_depth) {}

  /// Takes the next bytes; `at` is the offset of the first in the file. No effect after an error.
  void feed(std::string_view bytes, std::uint64_t at, Listener& listener);
  /// Ends the input: a number may end here. True if the text is complete.
  bool end(Listener& listener);
  /// Resets everything except the line count: the next byte begins another text.
  void restart();

  /// The error; "" if none.
  const std::string& error() const { return error_; }
  std::uint64_t error_at() const { return error_at_; }
  std::uint64_t lines() const { return lines_; }  // line breaks so far
  bool blank() const { return state_ == State::kBegin; }
  bool whole() const { return state_ == State::kDone; }

  codec::Json save() const;
  Status restore(const codec::Json& saved);

 private:
  enum class State : std::uint8_t {
    kBegin,
    kValue,
    kValueOrEnd,
    kNameOrEnd,
    kName,
    kColon,
    kAfter,
    kDone,
    kString,
    kEscape,
    kHex,
    kLowEscape,
    kLowU,
    kMinus,
    kZero,
    kInteger,
    kPoint,
    kFraction,
    kExponent,
    kExponentSign,
    kExponentDigits,
    kLiteral,
    kLast = kLiteral,
  };

  void fail(std::string_view why, std::uint64_t at);
  void take(char c, std::uint64_t at, Listener& listener);
  void begin_value(char c, std::uint64_t at, Listener& listener);
  void end_scalar(Kind kind, Listener& listener);
  void end_container(char c, std::uint64_t at, Listener& listener);
  void string_byte(unsigned char c, std::uint64_t at, Listener& listener);
  bool number_byte(char c, std::uint64_t at, Listener& listener);
  void keep(std::string_view bytes);
  std::size_t plain_run(std::string_view bytes) const;

  const std::size_t text_depth_;
  State state_ = State::kBegin;
  std::string open_;                                 // '{' and '[', outermost first
  bool is_name_ = false;                             // the string being read
  std::uint8_t utf8_left_ = 0;                       // continuation bytes that must follow
  std::uint8_t utf8_low_ = 0x80, utf8_high_ = 0xBF;  // bounds of the next continuation byte
  std::uint8_t hex_left_ = 0;
  std::uint16_t hex_ = 0;
  bool low_half_ = false;  // a low surrogate is being read
  std::uint8_t literal_ = 0, literal_at_ = 0;
  std::uint64_t lines_ = 0;
  std::string text_;
  bool cut_ = false;
  std::string error_;
  std::uint64_t error_at_ = 0;
};

}  // namespace varda::dataset
