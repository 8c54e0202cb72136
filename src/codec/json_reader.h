// JsonReader: reads a JSON text from front to back without building a tree, for texts whose bulk is arrays of numbers.
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
// Errors stick: after the first one every call does nothing and returns false, 0 or empty, so one check at the end is enough.
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

  explicit JsonReader(std::string_view text) : begin_(text.data()), at_(text.data()), end_(text.data() + text.size()) {}

  /// Of the next value, by its first character; kOther at the end of the text and for what begins no value.
  Kind peek();

  bool begin_object();
  /// The name of the next member, whose value must then be read; false at the object's end.
  bool next_member(std::string& name);
  bool begin_array();
  /// Whether an item follows, which must then be read; false at the array's end.
  bool next_item();

  /// A number as written: `integral` if it has neither fraction nor exponent and fits 64 bits.
  struct Number {
    double value = 0;
    bool integral = false;
    bool negative = false;
    std::uint64_t magnitude = 0;  // where integral
  };
  /// Numbers beyond a double's range are an error.
  Number number();
  bool boolean();
  std::string string();
  /// The next value as a tree.
  Json value();
  /// The text of the next value. Only brackets and strings are looked at: it may still turn out not to be JSON.
  std::string_view skip();

  /// Makes every later call fail with `error`, at the place reached. The first error wins.
  void fail(std::string_view what);
  bool failed() const { return !error_.empty(); }
  /// Bytes not read yet.
  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
  /// kInvalid: "offset N: what", of the first error, or of text behind the value.
  Status finish();
  Status status() const;

 private:
  void space();
  bool take(char c);
  bool literal(std::string_view word);
  // Called after an item: whether there is another one.
  bool next(char close);

  const char* begin_;
  const char* at_;
  const char* end_;
  bool first_ = false;  // right after an opening bracket
  std::string error_;
};

}  // namespace varda::codec
