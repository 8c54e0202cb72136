#include "samples/internal/augment.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace varda::samples::internal {
namespace {

/// SplitMix64 (https://prng.di.unimi.it/splitmix64.c): a few numbers from any seed. Objects of
/// base's seeded_rng() would need memory for each image.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t index) : state_(seed) { state_ = next() ^ index; }
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  /// Uniform in [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  /// Uniform in [1 - range, 1 + range).
  float factor(double range) { return static_cast<float>(1 + range * (2 * unit() - 1)); }
  /// Uniform in -most, …, most.
  std::int64_t shift(std::int64_t most) {
    return static_cast<std::int64_t>(std::floor(unit() * static_cast<double>(2 * most + 1))) - most;
  }

 private:
  std::uint64_t state_;
};

}  // namespace

void change(std::vector<float>& pixels, std::size_t width, std::size_t height, std::size_t channels,
            const Augment& augment, std::uint64_t seed, std::size_t index) {
  // All numbers are drawn always: one change never depends on the others.
  Draws draws(seed, index);
  const bool flip = draws.unit() < 0.5 && augment.flip;
  const std::int64_t most = std::max<std::int64_t>(augment.crop, 0);
  const std::int64_t right = draws.shift(std::min(most, static_cast<std::int64_t>(width)));
  const std::int64_t down = draws.shift(std::min(most, static_cast<std::int64_t>(height)));
  const float contrast = draws.factor(augment.jitter), brightness = draws.factor(augment.jitter);

  if (flip || right != 0 || down != 0) {
    const std::vector<float> from = pixels;
    const auto last_x = static_cast<std::int64_t>(width) - 1,
               last_y = static_cast<std::int64_t>(height) - 1;
    float* to = pixels.data();
    for (std::int64_t y = 0; y <= last_y; ++y) {
      const auto row = static_cast<std::size_t>(std::clamp<std::int64_t>(y - down, 0, last_y));
      for (std::int64_t x = 0; x <= last_x; ++x) {
        std::int64_t column = std::clamp<std::int64_t>(x - right, 0, last_x);
        if (flip) column = last_x - column;
        const float* pixel =
            from.data() + (row * width + static_cast<std::size_t>(column)) * channels;
        to = std::copy_n(pixel, channels, to);
      }
    }
  }
  if (augment.jitter > 0 && !pixels.empty()) {
    const double mean =
        std::accumulate(pixels.begin(), pixels.end(), 0.0) / static_cast<double>(pixels.size());
    const auto centre = static_cast<float>(mean);
    for (float& value : pixels)
      value = std::clamp(((value - centre) * contrast + centre) * brightness, 0.0f, 255.0f);
  }
}

}  // namespace varda::samples::internal
