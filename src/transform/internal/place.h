// The last part of the step for images: scale, mean, std, layout and type.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace varda::transform::internal {

/// Writes pixels with interleaved channels into a tensor. result = value * factor + offset.
struct Placing {
  std::size_t channels = 3;  // 1 or 3
  std::size_t area = 0;      // pixels of an image
  bool planes = false;       // one channel after the other in the tensor
  bool reversed = false;     // blue, green, red in the tensor
  std::array<float, 3> factor{};
  std::array<float, 3> offset{};

  /// A whole image. `tones` has the value of each byte.
  void bytes(std::span<const std::uint8_t> pixels, const std::array<float, 256>& tones,
             tensor::Tensor& out, std::size_t image) const;
  /// Some pixels of an image, from number `first` on.
  void floats(std::span<const float> pixels, std::size_t first, tensor::Tensor& out,
              std::size_t image) const;
};

}  // namespace varda::transform::internal
