// Protocol buffer wire format, field by field, for a few messages. Callers name the field numbers.
//
//   ProtoWriter out;
//   out.text(1, "web").number(4, attempt);
//   out.message(2, [&](ProtoWriter& inner) { inner.text(1, "uid"); });
//   send(std::move(out).bytes());
//
//   ProtoReader in(bytes);
//   while (in.next()) {
//     if (in.field() == 1) name = in.text();
//     if (in.field() == 4) attempt = in.number();
//   }
//   TRY_VOID(in.status());
//
// Rules: protobuf.dev/programming-guides/encoding. Groups (absent from proto3) are an error.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace varda::codec {

/// Omits default values (0, "", no fields) as proto3 does, except where noted.
class ProtoWriter {
 public:
  /// int32, int64, uint32, uint64, bool, enum.
  ProtoWriter& number(std::uint32_t field, std::int64_t value);
  ProtoWriter& text(std::uint32_t field, std::string_view value);
  /// One element of a repeated number; written even if 0.
  ProtoWriter& item(std::uint32_t field, std::int64_t value);
  /// float; written even if 0.
  ProtoWriter& real(std::uint32_t field, float value);
  /// double; written even if 0.
  ProtoWriter& real64(std::uint32_t field, double value);
  /// sint64 (ZigZag); written even if 0.
  ProtoWriter& sint64(std::uint32_t field, std::int64_t value);
  /// One element of a repeated string; written even if empty.
  ProtoWriter& element(std::uint32_t field, std::string_view value);
  /// Written even if empty, because the presence of a message matters.
  ProtoWriter& message(std::uint32_t field, const std::function<void(ProtoWriter&)>& fill);
  /// One entry of a map<string, string>.
  ProtoWriter& entry(std::uint32_t field, std::string_view key, std::string_view value);

  /// Fields as another writer encoded them, such as ProtoReader::raw().
  ProtoWriter& raw(std::string_view fields) {
    out_ += fields;
    return *this;
  }

  const std::string& bytes() const& { return out_; }
  std::string bytes() && { return std::move(out_); }

 private:
  void varint(std::uint64_t value);
  std::string out_;
};

/// Iterates over the fields of one message in wire order. Borrows the bytes. A missing field, or
/// one of another type, reads as its default. Malformed bytes end the iteration; status() reports
/// them.
///
/// A packed list of numbers has its own reader: ProtoReader(in.bytes()), then next_number().
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view bytes) : remaining_(bytes) {}
  /// Advances to the next field; false at the end.
  bool next();
  /// Advances to the next number of a packed list; false at the end.
  bool next_number();
  std::uint32_t field() const { return field_; }
  bool is_number() const { return wire_ == 0; }
  bool is_bytes() const { return wire_ == 2; }
  bool is_real() const { return wire_ == 5; }
  bool is_real64() const { return wire_ == 1; }
  /// The value of a varint field.
  std::int64_t number() const { return is_number() ? static_cast<std::int64_t>(number_) : 0; }
  bool flag() const { return number() != 0; }
  /// The value of a sint64 field.
  std::int64_t sint64() const;
  /// The bytes of a length-delimited field: a string, or a nested message for another reader.
  std::string_view bytes() const { return is_bytes() ? bytes_ : std::string_view(); }
  std::string text() const { return std::string(bytes()); }
  /// The value of a float field.
  float real() const;
  /// The value of a double field.
  double real64() const;
  /// The complete field as written, with the tag.
  std::string_view raw() const { return raw_; }
  /// One entry of a map<string, string>.
  std::pair<std::string, std::string> entry() const;
  /// kInvalid: the bytes are not a protobuf message.
  Status status() const;

 private:
  bool varint(std::uint64_t& value);
  bool skip(std::size_t count);

  std::string_view remaining_, bytes_, raw_;
  std::uint32_t field_ = 0, wire_ = 0;
  std::uint64_t number_ = 0;
  bool broken_ = false;
};

}  // namespace varda::codec
