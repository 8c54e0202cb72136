// The step before the run: turns image files into the model's input.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"
#include "transform/pipeline.h"

namespace varda::transform::internal {

/// Immutable.
class ImageInput {
 public:
  /// kInvalid: the step does not fit the model's inputs; the message names the setting.
  static Result<ImageInput> bind(const ImageStep& step, std::span<const tensor::Spec> inputs,
                                 const Limits& limits);

  /// The model input for the images.
  const tensor::Spec& target() const { return target_; }
  /// [-1] or [N]: the number of images that a request may send.
  const tensor::Shape& files() const { return files_; }
  std::size_t width() const { return width_; }
  std::size_t height() const { return height_; }
  std::size_t channels() const { return channels_; }

  /// `inputs` are files, or their base64. Adds one entry per image to `sizes`. kInvalid: as for
  /// Pipeline::before().
  Result<tensor::Tensor> make(std::span<const std::string_view> inputs,
                              std::vector<ImageSize>& sizes) const;

 private:
  Status settle_layout(const ImageStep& step);
  Status settle_size(const ImageStep& step);
  Status settle_numbers(const ImageStep& step);
  Status check(std::span<const std::string_view> files, std::vector<ImageSize>& sizes) const;
  // Copies one image's values to their places in the tensor, which start at element `base`.
  void place(const std::vector<float>& pixels, tensor::Tensor& out, std::size_t base) const;

  tensor::Spec target_;
  tensor::Shape files_;
  std::string layout_;      // "NCHW": the meaning of each dimension
  bool flattened_ = false;  // all dimensions except N are one in the model
  Channels order_ = Channels::kRgb;
  Filter filter_ = Filter::kBilinear;
  std::size_t width_ = 0;
  std::size_t height_ = 0;
  std::size_t channels_ = 3;
  std::array<float, 3> factor_{};  // result = value * factor + offset
  std::array<float, 3> offset_{};
  Limits limits_;
};

}  // namespace varda::transform::internal
