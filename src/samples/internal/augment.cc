// Compiled by itself, with -O3 (CMakeLists.txt).
#include "samples/internal/augment.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

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

/// The order is `flip`, then the shift.
struct Move {
  bool flip = false;
  std::ptrdiff_t right = 0, down = 0;
  bool any() const { return flip || right != 0 || down != 0; }
};

/// A pixel at a time. std::copy_n() becomes a call of memmove() for each.
template <std::ptrdiff_t channels, typename Value>
Value* copy_pixel(const Value* from, Value* to) {
  for (std::ptrdiff_t c = 0; c < channels; ++c) to[c] = from[c];
  return to + channels;
}

/// The edge's pixels fill the gap of the shift.
template <std::ptrdiff_t channels, typename Value>
void move_row(const Value* from, const Move& move, std::ptrdiff_t width, Value* to) {
  const std::ptrdiff_t step = move.flip ? -channels : channels;
  const Value* const first = move.flip ? from + (width - 1) * channels : from;
  const Value* const last = first + (width - 1) * step;
  const std::ptrdiff_t begin = std::clamp<std::ptrdiff_t>(move.right, 0, width);
  const std::ptrdiff_t end = std::clamp<std::ptrdiff_t>(width + move.right, 0, width);
  for (std::ptrdiff_t x = 0; x < begin; ++x) to = copy_pixel<channels>(first, to);
  if (move.flip) {
    for (std::ptrdiff_t x = begin; x < end; ++x)
      to = copy_pixel<channels>(first + (x - move.right) * step, to);
  } else {
    to = std::copy_n(from + (begin - move.right) * channels, (end - begin) * channels, to);
  }
  for (std::ptrdiff_t x = end; x < width; ++x) to = copy_pixel<channels>(last, to);
}

/// In place. Rows that move down are written from the bottom up, so that a row is read before it
/// changes.
template <typename Value>
void move_pixels(std::vector<Value>& pixels, const Move& move, std::size_t width,
                 std::size_t height, std::size_t channels) {
  const std::size_t row_size = width * channels;
  std::vector<Value> row(row_size);
  const auto last = static_cast<std::ptrdiff_t>(height) - 1;
  for (std::ptrdiff_t i = 0; i <= last; ++i) {
    const std::ptrdiff_t y = move.down > 0 ? last - i : i;
    const std::ptrdiff_t source = std::clamp<std::ptrdiff_t>(y - move.down, 0, last);
    const Value* const from = pixels.data() + static_cast<std::size_t>(source) * row_size;
    Value* const to = pixels.data() + static_cast<std::size_t>(y) * row_size;
    if (channels == 1) {
      move_row<1>(from, move, static_cast<std::ptrdiff_t>(width), row.data());
    } else {
      move_row<3>(from, move, static_cast<std::ptrdiff_t>(width), row.data());
    }
    std::ranges::copy(row, to);
  }
}

/// Contrast around the mean, then brightness.
struct Jitter {
  float mean = 0, contrast = 1, brightness = 1;
  float operator()(float value) const {
    return std::clamp(((value - mean) * contrast + mean) * brightness, 0.0f, 255.0f);
  }
};

/// The sum of integers is exact, so both forms of an image have the same mean.
double mean_of(const transform::Pixels& pixels) {
  if (!pixels.resized) {
    constexpr std::size_t kPart = 1 << 16;  // sums of 32 bits are faster
    std::uint64_t sum = 0;
    for (std::span<const std::uint8_t> rest = pixels.bytes; !rest.empty();) {
      const auto part = rest.first(std::min(kPart, rest.size()));
      sum += std::accumulate(part.begin(), part.end(), std::uint32_t{0});
      rest = rest.subspan(part.size());
    }
    return static_cast<double>(sum) / static_cast<double>(pixels.bytes.size());
  }
  return std::accumulate(pixels.values.begin(), pixels.values.end(), 0.0) /
         static_cast<double>(pixels.values.size());
}

}  // namespace

void change(transform::Pixels& pixels, std::size_t width, std::size_t height, std::size_t channels,
            const Augment& augment, std::uint64_t seed, std::size_t index) {
  // All numbers are drawn always: one change never depends on the others.
  Draws draws(seed, index);
  Move move;
  move.flip = draws.unit() < 0.5 && augment.flip;
  const std::int64_t most = std::max<std::int64_t>(augment.crop, 0);
  move.right = draws.shift(std::min(most, static_cast<std::int64_t>(width)));
  move.down = draws.shift(std::min(most, static_cast<std::int64_t>(height)));
  Jitter jitter;
  jitter.contrast = draws.factor(augment.jitter);
  jitter.brightness = draws.factor(augment.jitter);

  if (move.any() && pixels.resized) move_pixels(pixels.values, move, width, height, channels);
  if (move.any() && !pixels.resized) move_pixels(pixels.bytes, move, width, height, channels);
  if (augment.jitter <= 0 || width * height == 0) return;
  jitter.mean = static_cast<float>(mean_of(pixels));
  const auto apply = [&](std::span<float> values) {
    std::ranges::transform(values, values.begin(), jitter);
  };
  if (pixels.resized) {
    apply(pixels.values);
  } else {
    apply(pixels.tones);
  }
}

}  // namespace varda::samples::internal
