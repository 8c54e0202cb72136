// Scores of classes: softmax and the best of them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace varda::transform::internal {

/// The values of a tensor as float: its own memory where it is FP32. Valid as long as tensor and object.
class Floats {
 public:
  /// kInvalid: not FP32, FP64, FP16 or BF16.
  static Result<Floats> of(const tensor::Tensor& tensor);
  std::span<const float> values() const { return owned_.empty() ? borrowed_ : std::span<const float>(owned_); }

 private:
  std::vector<float> owned_;
  std::span<const float> borrowed_;
};

bool is_floating(tensor::DType dtype);

/// How the scores of classes lie in a shape: along the last dimension, or along C of [N,C,1,1].
struct ScoreShape {
  tensor::Shape rows;        // the dimensions before the classes; -1 in a specification
  std::int64_t classes = 0;  // -1: open
  /// kInvalid: no dimensions.
  static Result<ScoreShape> of(const tensor::Shape& shape);
};

/// exp(x - max) / sum, row by row; `out` is as long as `in`, whose size is a multiple of `classes`.
void softmax(std::span<const float> in, std::size_t classes, std::span<float> out);

/// The indexes of the k largest of a row, best first; of equal ones the lower index first, NaN last. k <= row.size().
std::vector<std::size_t> top_k(std::span<const float> row, std::size_t k);

/// The name of a class, or its number where there are no names.
std::string label_of(std::size_t index, std::span<const std::string> labels);

}  // namespace varda::transform::internal
