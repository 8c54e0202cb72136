// The step before the run: files of images become the model's input.
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
  static Result<ImageInput> bind(const ImageStep& step, std::span<const tensor::Spec> inputs, const Limits& limits);

  /// The model's input that images become.
  const tensor::Spec& target() const { return target_; }
  /// [-1] or [N]: how many images a request may send.
  const tensor::Shape& files() const { return files_; }
  std::size_t width() const { return width_; }
  std::size_t height() const { return height_; }
  std::size_t channels() const { return channels_; }

  /// `given` are files, or base64 of them. kInvalid: as Pipeline::before(). `sizes` gets one entry an image.
  Result<tensor::Tensor> make(std::span<const std::string_view> given, std::vector<ImageSize>& sizes) const;

 private:
  Status settle_layout(const ImageStep& step);
  Status settle_size(const ImageStep& step);
  Status settle_numbers(const ImageStep& step);
  Status check(std::span<const std::string_view> files, std::vector<ImageSize>& sizes) const;
  // One image's values to their places in the tensor, which begin at `base` (elements).
  void place(const std::vector<float>& pixels, tensor::Tensor& out, std::size_t base) const;

  tensor::Spec target_;
  tensor::Shape files_;
  std::string layout_;      // "NCHW": which dimension is what
  bool flattened_ = false;  // all but N are one dimension of the model's
  Channels order_ = Channels::kRgb;
  Filter filter_ = Filter::kBilinear;
  std::size_t width_ = 0;
  std::size_t height_ = 0;
  std::size_t channels_ = 3;
  std::array<float, 3> factor_{};  // a value becomes value * factor + offset
  std::array<float, 3> offset_{};
  Limits limits_;
};

}  // namespace varda::transform::internal
