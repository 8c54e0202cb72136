// Resizing of images.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/image.h"
#include "transform/declaration.h"

namespace varda::transform::internal {

/// The rows of an image in `width` x `height`, channels interleaved, values 0 to 255, unrounded.
/// With s = old size / new size, along each axis
///   nearest   takes the pixel floor((x + 0.5) * s)
///   bilinear  samples at (x + 0.5) * s - 0.5, as the mean of both neighbours weighted by distance;
///             the edge pixel continues beyond the edge
///   area      is the mean over [x * s, (x + 1) * s), with partial pixels weighted by their share
class Resizer {
 public:
  /// `image` outlives the object.
  Resizer(const codec::Image& image, std::size_t width, std::size_t height, Filter filter);

  /// Row `y`, valid until the next call. Rows in ascending order are read once.
  std::span<const float> row(std::size_t y);

 private:
  /// Weights of old pixels for each new position along an axis.
  struct Axis {
    struct Taps {
      std::size_t first = 0;       // old pixel
      std::size_t weights_at = 0;  // in `weights`
      std::size_t count = 0;
    };
    std::vector<Taps> taps;
    std::vector<float> weights;
  };
  /// A row of the old image in the new width. Two are enough: requests ascend, except for steps
  /// back by one.
  struct Mixed {
    std::size_t number = 0;
    std::vector<float> values;
  };

  static Axis axis(std::size_t old_size, std::size_t new_size, Filter filter);
  std::span<const float> mixed(std::size_t old_row);
  void mix_grey(const std::uint8_t* line, float* to) const;
  void mix_colour(const std::uint8_t* line, float* to) const;

  const codec::Image& image_;
  const Axis columns_, lines_;
  std::array<Mixed, 2> mixed_;
  std::vector<float> row_;
};

/// All rows.
std::vector<float> resize(const codec::Image& image, std::size_t width, std::size_t height,
                          Filter filter);

}  // namespace varda::transform::internal
