// The step before the run: turns image files into the model's input.
//
// make() does all at once, for requests. Training does the same in parts, and may change the pixels
// in between:
//
//   TRY(tensor::Tensor out, pool.allocate(input.target().dtype, input.shape(images.size())));
//   for (std::size_t i = 0; i < images.size(); ++i) {
//     Pixels pixels = input.pixels(std::move(images[i]));
//     ...
//     input.place(pixels, out, i);
//   }
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/image.h"
#include "tensor/tensor.h"
#include "transform/pipeline.h"

namespace varda::transform {

namespace internal {
struct Placing;
}

using Tones = std::array<float, 256>;

/// One image in the model's size and channels, before scale, mean and std: rows of pixels with
/// interleaved channels (grey, or red, green, blue).
struct Pixels {
  bool resized = false;
  std::vector<std::uint8_t> bytes;  // each pixel; if resized, unused memory
  Tones tones{};                    // the value of each byte: 0 to 255
  std::vector<float> values;        // if resized: each pixel, 0 to 255, unrounded
};

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
  /// "NCHW": the meaning of each dimension.
  const std::string& layout() const { return layout_; }

  /// `inputs` are files, or their base64. Adds one entry per image to `sizes`. kInvalid: as for
  /// Pipeline::before().
  Result<tensor::Tensor> make(std::span<const std::string_view> inputs,
                              std::vector<ImageSize>& sizes) const;

  /// The tensor for `count` images.
  tensor::Shape shape(std::size_t count) const;
  /// Writes all values of image `index` of the tensor. Converts the channels of `image` in place.
  void write(codec::Image& image, tensor::Tensor& out, std::size_t index) const;

  /// The first half of write(). `memory`: of an earlier image, which the result uses again.
  Pixels pixels(codec::Image image, Pixels memory = {}) const;
  /// The second half of write().
  void place(const Pixels& pixels, tensor::Tensor& out, std::size_t index) const;

 private:
  Status settle_layout(const ImageStep& step);
  Status settle_size(const ImageStep& step);
  Status settle_numbers(const ImageStep& step);
  Status check(std::span<const std::string_view> files, std::vector<ImageSize>& sizes) const;
  bool has_size(const codec::Image& image) const {
    return image.width == width_ && image.height == height_;
  }
  internal::Placing placing() const;

  tensor::Spec target_;
  tensor::Shape files_;
  std::string layout_;
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

}  // namespace varda::transform
