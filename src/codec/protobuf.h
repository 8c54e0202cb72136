// The wire form of protocol buffers, field by field: for the few messages we speak, whose field numbers stand where they are used.
//
//   ProtoWriter out;
//   out.text(1, "web").number(4, attempt).message(2, [&](ProtoWriter& inner) { inner.text(1, "uid"); });
//   send(std::move(out).bytes());
//
//   ProtoReader in(bytes);
//   while (in.next()) {
//     if (in.field() == 1) name = in.text();
//     if (in.field() == 4) attempt = in.number();
//   }
//   TRY_VOID(in.status());
//
// Rules: protobuf.dev/programming-guides/encoding. Groups, which proto3 does not have, are an error.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace varda::codec {

/// What has its default (0, "", no fields) is left out, as proto3 does, unless a method says otherwise.
class ProtoWriter {
 public:
  /// int32, int64, uint32, uint64, bool, enum.
  ProtoWriter& number(std::uint32_t field, std::int64_t value);
  ProtoWriter& text(std::uint32_t field, std::string_view value);
  /// One element of a repeated string: written even if it is empty.
  ProtoWriter& element(std::uint32_t field, std::string_view value);
  /// Written even if it is empty: a message that is there says something.
  ProtoWriter& message(std::uint32_t field, const std::function<void(ProtoWriter&)>& fill);
  /// One entry of a map<string, string>.
  ProtoWriter& entry(std::uint32_t field, std::string_view key, std::string_view value);

  const std::string& bytes() const& { return out_; }
  std::string bytes() && { return std::move(out_); }

 private:
  void varint(std::uint64_t value);
  std::string out_;
};

/// Walks over the fields of one message in the order they came. Borrows the bytes. A field of another type than the one asked for
/// reads as its default, like one that is missing; broken bytes end the walk, and status() says so.
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view bytes) : rest_(bytes) {}
  /// On to the next field; false at the end.
  bool next();
  std::uint32_t field() const { return field_; }
  /// A varint field's value.
  std::int64_t number() const { return wire_ == 0 ? static_cast<std::int64_t>(number_) : 0; }
  bool flag() const { return number() != 0; }
  /// The bytes of a length-delimited field: a string, or a message for a reader of its own.
  std::string_view bytes() const { return wire_ == 2 ? bytes_ : std::string_view(); }
  std::string text() const { return std::string(bytes()); }
  /// One entry of a map<string, string>.
  std::pair<std::string, std::string> entry() const;
  /// kInvalid: the bytes are no message.
  Status status() const;

 private:
  bool varint(std::uint64_t& value);
  bool skip(std::size_t count);

  std::string_view rest_, bytes_;
  std::uint32_t field_ = 0, wire_ = 0;
  std::uint64_t number_ = 0;
  bool broken_ = false;
};

}  // namespace varda::codec
