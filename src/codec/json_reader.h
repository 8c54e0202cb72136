// JsonReader: reads JSON text sequentially without a tree, for texts with large arrays of numbers.
//
//   JsonReader reader(text);
//   std::string name;
//   reader.begin_object();
//   while (reader.next_member(name)) {
//     if (name == "data") {
//       reader.begin_array();
//       while (reader.next_item()) sum += reader.number();
//     } else {
//       reader.skip();
//     }
//   }
//   TRY_VOID(reader.finish());
//
// Errors stick: after the first one, all calls do nothing and return false, 0 or empty. One check
// at the end is enough.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/json.h"

namespace varda::codec {

/// Not thread-safe. The text outlives it.
class JsonReader {
 public:
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject, kOther };

  explicit JsonReader(std::string_view text)
      : begin_(text.data()), at_(text.data()), end_(text.data() + text.size()) {}

  /// Kind of the next value, from its first character; kOther at the end of the text or for an
  /// invalid character.
  Kind peek();

  bool begin_object();
  /// Reads the next member's name; the caller must then read the value. False at the end of the
  /// object.
  bool next_member(std::string& name);
  bool begin_array();
  /// True if an item follows, which the caller must then read; false at the end of the array.
  bool next_item();

  /// A number as written. `integral`: no fraction or exponent, and fits 64 bits.
  struct Number {
    double value = 0;
    bool integral = false;
    bool negative = false;
    std::uint64_t magnitude = 0;  // if integral
  };
  /// Numbers beyond the range of double are errors.
  Number number();
  bool boolean();
  std::string string();
  /// Reads the next value as a tree.
  Json value();
  /// Skips the next value and returns its text. Checks only brackets and strings: the text may not
  /// be valid JSON.
  std::string_view skip();

  /// Makes every later call fail with `what`, at the current offset. The first error wins.
  void fail(std::string_view what);
  bool failed() const { return !error_.empty(); }
  /// Unread bytes.
  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
  /// kInvalid: "offset N: what", for the first error or for text after the value.
  Status finish();
  Status status() const;

 private:
  void space();
  bool take(char c);
  bool literal(std::string_view literal_text);
  // Called after an item; true if another one follows.
  bool next(char close);

  const char* begin_;
  const char* at_;
  const char* end_;
  bool first_ = false;  // right after an opening bracket
  std::string error_;
};

}  // namespace varda::codec
