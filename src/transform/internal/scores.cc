#include "transform/internal/scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tensor/half.h"

namespace varda::transform::internal {

using tensor::DType;

bool is_floating(DType dtype) {
  return dtype == DType::kFp32 || dtype == DType::kFp64 || dtype == DType::kFp16 ||
         dtype == DType::kBf16;
}

Result<Floats> Floats::of(const tensor::Tensor& tensor) {
  Floats out;
  switch (tensor.dtype()) {
    case DType::kFp32:
      out.borrowed_ = tensor.values<float>();
      return out;
    case DType::kFp64:
      for (const double value : tensor.values<double>())
        out.owned_.push_back(static_cast<float>(value));
      return out;
    case DType::kFp16:
      for (const std::uint16_t value : tensor.values<std::uint16_t>())
        out.owned_.push_back(tensor::float_of(value));
      return out;
    case DType::kBf16:
      for (const std::uint16_t value : tensor.values<std::uint16_t>())
        out.owned_.push_back(tensor::float_of_bf16(value));
      return out;
    default:
      return Error(Code::kInvalid,
                   std::string(to_string(tensor.dtype())) + " is not a floating type");
  }
}

Result<ScoreShape> ScoreShape::of(const tensor::Shape& shape) {
  if (shape.empty()) return Error(Code::kInvalid, "a single number has no classes");
  if (shape.size() == 4 && shape[2] == 1 && shape[3] == 1) return ScoreShape{{shape[0]}, shape[1]};
  return ScoreShape{{shape.begin(), shape.end() - 1}, shape.back()};
}

void softmax(std::span<const float> in, std::size_t classes, std::span<float> out) {
  for (std::size_t at = 0; at < in.size(); at += classes) {
    const auto row = in.subspan(at, classes);
    // The largest value becomes exp(0): nothing overflows, and the sum is at least 1.
    const float max = *std::max_element(row.begin(), row.end());
    float sum = 0;
    for (std::size_t i = 0; i < classes; ++i) sum += out[at + i] = std::exp(row[i] - max);
    for (std::size_t i = 0; i < classes; ++i) out[at + i] /= sum;
  }
}

std::vector<std::size_t> top_k(std::span<const float> row, std::size_t k) {
  std::vector<std::size_t> order(row.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto better = [&](std::size_t a, std::size_t b) {
    const bool a_nan = std::isnan(row[a]), b_nan = std::isnan(row[b]);
    if (a_nan || b_nan) return a_nan == b_nan ? a < b : b_nan;
    return row[a] != row[b] ? row[a] > row[b] : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), order.end(),
                    better);
  order.resize(k);
  return order;
}

std::string label_of(std::size_t index, std::span<const std::string> labels) {
  return index < labels.size() ? labels[index] : std::to_string(index);
}

}  // namespace varda::transform::internal
