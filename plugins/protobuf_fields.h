// Reads protobuf's wire format field by field, for plug-ins that check a file before a library
// opens it. Rules: protobuf.dev/programming-guides/encoding. Groups count as malformed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace varda_plugins {

/// Iterates over the fields of one message. Borrows the bytes.
class ProtobufFields {
 public:
  explicit ProtobufFields(std::string_view bytes) : remaining_(bytes) {}

  struct Field {
    std::uint32_t number = 0;
    std::optional<std::string_view> bytes;  // for length-delimited fields
    std::uint64_t value = 0;                // for varints
  };
  /// Empty: the end, or a malformed field.
  std::optional<Field> next() {
    if (remaining_.empty()) return std::nullopt;
    const auto tag = varint();
    // Protobuf drops the bits above the 32nd, and would see another field here.
    if (!tag || *tag >> 32 != 0) return fail();
    Field out{static_cast<std::uint32_t>(*tag >> 3), {}};
    switch (*tag & 7) {
      case 0: {
        const auto value = varint();
        if (!value) return fail();
        out.value = *value;
        return out;
      }
      case 1:
        return skip(8) ? std::optional(out) : fail();
      case 2: {
        const auto length = varint();
        if (!length || *length > remaining_.size()) return fail();
        out.bytes = remaining_.substr(0, *length);
        remaining_.remove_prefix(*length);
        return out;
      }
      case 5:
        return skip(4) ? std::optional(out) : fail();
      default:
        return fail();  // groups
    }
  }
  bool broken() const { return broken_; }

 private:
  std::optional<Field> fail() {
    broken_ = true;
    return std::nullopt;
  }
  bool skip(std::size_t count) {
    if (remaining_.size() < count) return false;
    remaining_.remove_prefix(count);
    return true;
  }
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (remaining_.empty()) return std::nullopt;
      const auto byte = static_cast<unsigned char>(remaining_.front());
      remaining_.remove_prefix(1);
      if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::string_view remaining_;
  bool broken_ = false;
};

}  // namespace varda_plugins
