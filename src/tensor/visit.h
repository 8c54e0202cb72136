// visit_dtype(): one piece of code for all element types.
//
//   visit_dtype(tensor.dtype(), [&]<typename T>(std::type_identity<T>) {
//     if constexpr (std::is_integral_v<T>) sum += total(tensor.values<T>());
//   });
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "tensor/dtype.h"
#include "tensor/half.h"

namespace varda::tensor {

// Elements without a C++ type of their own.
struct Fp16 {
  std::uint16_t bits = 0;
  static Fp16 of(float value) { return {half_of(value)}; }
  float value() const { return float_of(bits); }
};
struct Bf16 {
  std::uint16_t bits = 0;
  static Bf16 of(float value) { return {bf16_of(value)}; }
  float value() const { return float_of_bf16(bits); }
};
struct Bytes {};  // elements differ in size: use Tensor::strings()

template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, Fp16> || std::is_same_v<T, Bf16>;

/// Calls `visit` with the element type as std::type_identity, and returns its result.
template <typename Visit>
decltype(auto) visit_dtype(DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::kBool:
      return visit(std::type_identity<bool>());
    case DType::kUint8:
      return visit(std::type_identity<std::uint8_t>());
    case DType::kUint16:
      return visit(std::type_identity<std::uint16_t>());
    case DType::kUint32:
      return visit(std::type_identity<std::uint32_t>());
    case DType::kUint64:
      return visit(std::type_identity<std::uint64_t>());
    case DType::kInt8:
      return visit(std::type_identity<std::int8_t>());
    case DType::kInt16:
      return visit(std::type_identity<std::int16_t>());
    case DType::kInt32:
      return visit(std::type_identity<std::int32_t>());
    case DType::kInt64:
      return visit(std::type_identity<std::int64_t>());
    case DType::kFp16:
      return visit(std::type_identity<Fp16>());
    case DType::kFp32:
      return visit(std::type_identity<float>());
    case DType::kFp64:
      return visit(std::type_identity<double>());
    case DType::kBytes:
      return visit(std::type_identity<Bytes>());
    case DType::kBf16:
      return visit(std::type_identity<Bf16>());
  }
  detail::check_failed("visit_dtype: no such type", __FILE__, __LINE__);
}

}  // namespace varda::tensor
