// Scores of classes: softmax and top k.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace varda::transform::internal {

/// The values of a tensor as float. FP32 tensors are borrowed, others converted. Valid while the
/// tensor and this object live.
class Floats {
 public:
  /// kInvalid: not FP32, FP64, FP16 or BF16.
  static Result<Floats> of(const tensor::Tensor& tensor);
  std::span<const float> values() const {
    return owned_.empty() ? borrowed_ : std::span<const float>(owned_);
  }

 private:
  std::vector<float> owned_;
  std::span<const float> borrowed_;
};

bool is_floating(tensor::DType dtype);

/// Position of the class scores in a shape: the last dimension, or C of [N,C,1,1].
struct ScoreShape {
  tensor::Shape rows;        // the dimensions before the classes; -1 in a specification
  std::int64_t classes = 0;  // -1: open
  /// kInvalid: no dimensions.
  static Result<ScoreShape> of(const tensor::Shape& shape);
};

/// Computes exp(x - max) / sum for each row. `out` has the size of `in`, a multiple of `classes`.
void softmax(std::span<const float> in, std::size_t classes, std::span<float> out);

/// Indexes of the k largest values of a row, best first. Among equal values the lower index comes
/// first; NaN comes last. k <= row.size().
std::vector<std::size_t> top_k(std::span<const float> row, std::size_t k);

/// The name of a class, or its number without names.
std::string label_of(std::size_t index, std::span<const std::string> labels);

}  // namespace varda::transform::internal
