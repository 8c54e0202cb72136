#include "serving/trial/best_class.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "tensor/half.h"

namespace varda::serving::trial {
namespace {

using tensor::DType;
using tensor::Named;
using tensor::Tensor;

constexpr std::size_t kScoresMax = 65536;
constexpr double kTolerance = 0.01, kToleranceAbsolute = 0.001;

bool has_reals(const Tensor& tensor) {
  return tensor.dtype() == DType::kFp16 || tensor.dtype() == DType::kBf16 ||
         tensor.dtype() == DType::kFp32 || tensor.dtype() == DType::kFp64;
}

double real_number(const Tensor& tensor, std::size_t index) {
  switch (tensor.dtype()) {
    case DType::kFp32:
      return tensor.values<float>()[index];
    case DType::kFp64:
      return tensor.values<double>()[index];
    case DType::kFp16:
      return tensor::float_of(tensor.values<std::uint16_t>()[index]);
    case DType::kBf16:
      return tensor::float_of_bf16(tensor.values<std::uint16_t>()[index]);
    default:
      return std::nan("");
  }
}

const Tensor* tensor_named(std::span<const Named> outputs, std::string_view name) {
  const auto found = std::find_if(outputs.begin(), outputs.end(),
                                  [&](const Named& output) { return output.name == name; });
  return found == outputs.end() ? nullptr : &found->tensor;
}

// [N,k], or the same with trailing ones; [k] is one row. 0: not such a shape.
std::size_t row_length(const Tensor& tensor) {
  const tensor::Shape& shape = tensor.shape();
  if (shape.empty() || tensor.size() == 0) return 0;
  if (shape.size() == 1) return static_cast<std::size_t>(shape[0]);
  const bool rows =
      std::all_of(shape.begin() + 2, shape.end(), [](std::int64_t size) { return size == 1; });
  return rows ? static_cast<std::size_t>(shape[1]) : 0;
}

bool is_classes(const Tensor& tensor) {
  return has_reals(tensor) && tensor.size() <= kScoresMax && row_length(tensor) >= 2;
}

// The scores to read; null: none, or several outputs could have them.
const Tensor* class_scores(std::span<const Named> outputs) {
  if (const Tensor* named = tensor_named(outputs, "probabilities"))
    return is_classes(*named) ? named : nullptr;
  for (const char* name : {"boxes", "detection_boxes", "detections"})
    if (tensor_named(outputs, name) != nullptr) return nullptr;
  const Tensor* only = nullptr;
  for (const Named& output : outputs) {
    if (!is_classes(output.tensor)) continue;
    if (only != nullptr) return nullptr;
    only = &output.tensor;
  }
  return only;
}

BestClass best_of_row(const Tensor& scores, std::size_t begin, std::size_t length) {
  std::size_t best = begin;
  double greatest = real_number(scores, begin);
  bool fractions = true;  // every value is from 0 to 1
  for (std::size_t i = begin; i < begin + length; ++i) {
    const double value = real_number(scores, i);
    fractions = fractions && value >= 0 && value <= 1;
    if (value > greatest || std::isnan(greatest)) {
      greatest = value;
      best = i;
    }
  }
  double score = greatest;
  if (!fractions) {
    double sum = 0;
    for (std::size_t i = begin; i < begin + length; ++i)
      sum += std::exp(real_number(scores, i) - greatest);
    score = 1 / sum;
  }
  return {std::to_string(best - begin), std::isfinite(score) ? score : 0};
}

bool is_near(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == b) return true;  // also infinities
  return std::abs(a - b) <=
         std::max(kToleranceAbsolute, kTolerance * std::max(std::abs(a), std::abs(b)));
}

bool equal_tensors(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  if (!has_reals(a)) {
    const auto left = a.bytes(), right = b.bytes();
    return std::equal(left.begin(), left.end(), right.begin(), right.end());
  }
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!is_near(real_number(a, i), real_number(b, i))) return false;
  return true;
}

std::optional<std::vector<BestClass>> best_labels(const Tensor& labels, const Tensor* scores) {
  const std::size_t length = row_length(labels);
  if (length == 0 || labels.size() > kScoresMax) return std::nullopt;
  const bool scored = scores != nullptr && has_reals(*scores) && scores->shape() == labels.shape();
  const std::vector<std::string_view> names = labels.strings();
  std::vector<BestClass> out;
  for (std::size_t i = 0; i < names.size(); i += length)
    out.push_back({std::string(names[i]), scored ? real_number(*scores, i) : 0});
  return out;
}

}  // namespace

std::optional<std::vector<BestClass>> best_classes(std::span<const Named> outputs) {
  if (const Tensor* labels = tensor_named(outputs, "labels");
      labels != nullptr && labels->dtype() == DType::kBytes)
    return best_labels(*labels, tensor_named(outputs, "scores"));
  const Tensor* scores = class_scores(outputs);
  if (scores == nullptr) return std::nullopt;
  const std::size_t length = row_length(*scores);
  std::vector<BestClass> out;
  for (std::size_t begin = 0; begin + length <= scores->size(); begin += length)
    out.push_back(best_of_row(*scores, begin, length));
  return out;
}

bool agree(std::span<const Named> a, std::span<const Named> b) {
  const auto left = best_classes(a), right = best_classes(b);
  if (left.has_value() != right.has_value()) return false;
  if (left) {
    return std::equal(left->begin(), left->end(), right->begin(), right->end(),
                      [](const BestClass& x, const BestClass& y) { return x.name == y.name; });
  }
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Named& x, const Named& y) {
    return x.name == y.name && equal_tensors(x.tensor, y.tensor);
  });
}

}  // namespace varda::serving::trial
