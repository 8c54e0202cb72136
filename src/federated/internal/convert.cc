#include "federated/internal/convert.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include "base/check.h"
#include "federated/internal/kernels.h"
#include "tensor/visit.h"

namespace varda::federated {
namespace {

using tensor::DType;

constexpr float kFp16Limit = 65520;  // rounds to infinity

template <typename T>
T saturated(float value) {
  const double rounded = std::nearbyint(static_cast<double>(value));
  if (rounded <= static_cast<double>(std::numeric_limits<T>::min()))
    return std::numeric_limits<T>::min();
  // The greatest 64-bit integer rounds up to 2^63 or 2^64 here, which no conversion may reach.
  if (rounded >= static_cast<double>(std::numeric_limits<T>::max()))
    return std::numeric_limits<T>::max();
  return static_cast<T>(rounded);
}

}  // namespace

bool is_numeric(DType dtype) { return dtype != DType::kBool && dtype != DType::kBytes; }

void to_floats(DType dtype, std::span<const std::byte> in, std::span<float> out) {
  CHECK(is_numeric(dtype) && in.size() == out.size() * tensor::element_bytes(dtype));
  if (out.empty()) return;
  tensor::visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) {
    if constexpr (std::is_same_v<T, float>) {
      std::memcpy(out.data(), in.data(), in.size());
    } else if constexpr (std::is_same_v<T, double>) {
      kernels::from_fp64(in.data(), out.data(), out.size());
    } else if constexpr (std::is_same_v<T, tensor::Fp16>) {
      kernels::from_fp16(in.data(), out.data(), out.size());
    } else if constexpr (std::is_same_v<T, tensor::Bf16>) {
      kernels::from_bf16(in.data(), out.data(), out.size());
    } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      for (std::size_t i = 0; i < out.size(); ++i) {
        T value;
        std::memcpy(&value, in.data() + i * sizeof(T), sizeof(T));
        out[i] = static_cast<float>(value);
      }
    }
  });
}

Status from_floats(DType dtype, std::span<const float> in, std::span<std::byte> out) {
  CHECK(is_numeric(dtype) && out.size() == in.size() * tensor::element_bytes(dtype));
  if (in.empty()) return {};
  const float greatest = kernels::max_magnitude(in.data(), in.size());
  if (!std::isfinite(greatest)) return Error(Code::kInvalid, "a value is not finite");
  if (dtype == DType::kFp16 && greatest >= kFp16Limit)
    return Error(Code::kInvalid, "the value " + std::to_string(greatest) + " does not fit F16");
  // Floats near the greatest one round to infinity in BF16.
  if (dtype == DType::kBf16 && !std::isfinite(tensor::float_of_bf16(tensor::bf16_of(greatest))))
    return Error(Code::kInvalid, "the value " + std::to_string(greatest) + " does not fit BF16");
  tensor::visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) {
    if constexpr (std::is_same_v<T, float>) {
      std::memcpy(out.data(), in.data(), out.size());
    } else if constexpr (std::is_same_v<T, double>) {
      kernels::to_fp64(in.data(), out.data(), in.size());
    } else if constexpr (std::is_same_v<T, tensor::Fp16>) {
      kernels::to_fp16(in.data(), out.data(), in.size());
    } else if constexpr (std::is_same_v<T, tensor::Bf16>) {
      kernels::to_bf16(in.data(), out.data(), in.size());
    } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      for (std::size_t i = 0; i < in.size(); ++i) {
        const T value = saturated<T>(in[i]);
        std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
      }
    }
  });
  return {};
}

}  // namespace varda::federated
