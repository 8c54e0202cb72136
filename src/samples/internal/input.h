// The model's input: rows of numbers, or pictures.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "codec/image.h"
#include "samples/samples.h"
#include "transform/image_input.h"

namespace varda::samples::internal {

/// Immutable.
class NumberInput {
 public:
  /// Fits a sample of this shape into the input: equal dimensions except those of 1, or one row
  /// that has as many values. kInvalid has both shapes.
  static Result<NumberInput> bind(const tensor::Spec& input, const tensor::Shape& sample);

  std::size_t values() const { return values_; }  // of a sample
  Result<tensor::Tensor> allocate(std::size_t count, tensor::Pool& memory) const;
  /// kInvalid: a number that the input's type cannot hold.
  Status check(double value) const;
  /// Writes row `row`; `values` are checked.
  void write(std::span<const double> values, tensor::Tensor& out, std::size_t row) const;

 private:
  tensor::Spec input_;
  tensor::Shape shape_;  // of one sample in the tensor
  std::size_t values_ = 0;
};

/// Immutable.
class PictureInput {
 public:
  /// `own`: the common size and channels of the images, if they all have one. Without a declared
  /// step such images must have the input's size.
  struct Size {
    std::size_t width = 0, height = 0;
  };
  static Result<PictureInput> bind(const transform::Declaration& preprocess,
                                   const tensor::Spec& input, std::optional<Size> own = {});

  const transform::ImageInput& image() const { return *image_; }
  Result<tensor::Tensor> allocate(std::size_t count, tensor::Pool& memory) const;
  /// Augments image `index` of the dataset and writes it as row `row`. `memory` is used again for
  /// the next image; its `bytes` are for decoding that image.
  void write(codec::Image image, const Augment& augment, std::uint64_t seed, std::size_t index,
             tensor::Tensor& out, std::size_t row, transform::Pixels& memory) const;

 private:
  std::optional<transform::ImageInput> image_;
};

/// "the model's input "x" of shape [-1,4]"
std::string input_text(const tensor::Spec& input);

}  // namespace varda::samples::internal
