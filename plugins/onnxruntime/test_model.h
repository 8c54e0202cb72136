// Builds ONNX models for tests byte by byte, so that they may be invalid in any way.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace varda_onnxruntime::testing {

inline std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(0x80 | (value & 0x7f));
  return out += static_cast<char>(value);
}
inline std::string number(int field, std::uint64_t value) {
  return varint(static_cast<std::uint64_t>(field) << 3) + varint(value);
}
inline std::string bytes(int field, std::string_view value) {
  return varint(static_cast<std::uint64_t>(field) << 3 | 2) + varint(value.size()) +
         std::string(value);
}

/// StringStringEntryProto
inline std::string entry(std::string_view key, std::string_view value) {
  return bytes(1, key) + bytes(2, value);
}
/// TensorProto UINT8[count] with its content in another file.
inline std::string external(std::string_view name, std::string_view location, std::uint64_t count,
                            std::string_view offset = "0") {
  return number(1, count) + number(2, 2) + bytes(8, name) + bytes(13, entry("location", location)) +
         bytes(13, entry("offset", offset)) + bytes(13, entry("length", std::to_string(count))) +
         number(14, 1);
}
/// ValueInfoProto of UINT8[count]
inline std::string value_info(std::string_view name, std::uint64_t count) {
  const std::string shape = bytes(1, number(1, count));
  return bytes(1, name) + bytes(2, bytes(1, number(1, 2) + bytes(2, shape)));
}
/// NodeProto
inline std::string node(std::string_view op, std::string_view input, std::string_view output,
                        std::string_view attributes = "") {
  return (input.empty() ? "" : bytes(1, input)) + bytes(2, output) + bytes(4, op) +
         std::string(attributes);
}
/// ModelProto with the fields of a graph.
inline std::string model(std::string_view graph) {
  return number(1, 8) + bytes(7, graph) + bytes(8, number(2, 13));
}
/// A model that outputs `count` bytes of the file `location`.
inline std::string leak(std::string_view location, std::uint64_t count,
                        std::string_view offset = "0") {
  return model(bytes(1, node("Identity", "secret", "out")) + bytes(2, "g") +
               bytes(5, external("secret", location, count, offset)) +
               bytes(12, value_info("out", count)));
}

}  // namespace varda_onnxruntime::testing
