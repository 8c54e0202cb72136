// Element types and shapes, with the names of the Open Inference Protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace varda::tensor {

/// The values are part of the engine plug-in ABI (infer/plugin_abi.h) and never change.
enum class DType : std::uint8_t {
  kBool = 1,  // one byte, 0 or 1
  kUint8 = 2,
  kUint16 = 3,
  kUint32 = 4,
  kUint64 = 5,
  kInt8 = 6,
  kInt16 = 7,
  kInt32 = 8,
  kInt64 = 9,
  kFp16 = 10,
  kFp32 = 11,
  kFp64 = 12,
  kBytes = 13,  // strings of any bytes; elements differ in size
  kBf16 = 14,
};

/// "FP32", "BYTES", …
std::string_view to_string(DType dtype);
std::optional<DType> parse_dtype(std::string_view name);
/// The type with this ABI number; empty for an unknown number.
std::optional<DType> dtype_of(int number);
/// Bytes of one element; 0 for kBytes.
std::size_t element_bytes(DType dtype);

/// Dimensions, outermost first. In a specification (not in a tensor) -1 means any size.
using Shape = std::vector<std::int64_t>;

/// "[-1,8,8]"
std::string to_string(const Shape& shape);
/// Number of elements; 1 for a scalar. kInvalid: a negative dimension, or more than 2^48 elements.
Result<std::size_t> elements(const Shape& shape);
/// True if a tensor of `shape` fits a specification: same rank, and same sizes except at -1.
bool fits(const Shape& shape, const Shape& specification);

}  // namespace varda::tensor
