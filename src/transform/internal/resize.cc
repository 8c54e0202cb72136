#include "transform/internal/resize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace varda::transform::internal {
namespace {

// One new position along an axis: weights of old pixels, starting at `first`.
struct Taps {
  std::size_t first = 0;
  std::vector<float> weights;
};

Taps nearest(double scale, std::size_t old_size, std::size_t at) {
  const auto place = static_cast<std::size_t>((static_cast<double>(at) + 0.5) * scale);
  return {std::min(place, old_size - 1), {1.0f}};
}

Taps bilinear(double scale, std::size_t old_size, std::size_t at) {
  const double place = (static_cast<double>(at) + 0.5) * scale - 0.5;
  const double last = static_cast<double>(old_size - 1);
  if (place <= 0) return {0, {1.0f}};
  if (place >= last) return {old_size - 1, {1.0f}};
  const double below = std::floor(place);
  const auto share = static_cast<float>(place - below);
  if (share == 0) return {static_cast<std::size_t>(below), {1.0f}};
  return {static_cast<std::size_t>(below), {1.0f - share, share}};
}

Taps area(double scale, std::size_t old_size, std::size_t at) {
  const double begin = static_cast<double>(at) * scale;
  const double end = std::min(static_cast<double>(at + 1) * scale, static_cast<double>(old_size));
  Taps out{std::min(static_cast<std::size_t>(begin), old_size - 1), {}};
  for (std::size_t i = out.first; i < old_size && static_cast<double>(i) < end; ++i) {
    const double share =
        std::min(end, static_cast<double>(i + 1)) - std::max(begin, static_cast<double>(i));
    out.weights.push_back(static_cast<float>(share / (end - begin)));
  }
  return out;
}

std::vector<Taps> taps_of(std::size_t old_size, std::size_t new_size, Filter filter) {
  const double scale = static_cast<double>(old_size) / static_cast<double>(new_size);
  std::vector<Taps> out;
  out.reserve(new_size);
  for (std::size_t i = 0; i < new_size; ++i) {
    out.push_back(filter == Filter::kNearest    ? nearest(scale, old_size, i)
                  : filter == Filter::kBilinear ? bilinear(scale, old_size, i)
                                                : area(scale, old_size, i));
  }
  return out;
}

// Resizes rows of the old image to the new width. Callers request rows in ascending order, except
// for steps back by one: a cache of two rows is enough.
class Rows {
 public:
  Rows(const codec::Image& image, std::span<const Taps> columns)
      : image_(image), columns_(columns) {}

  const std::vector<float>& at(std::size_t row) {
    Row& place = rows_[row % rows_.size()];
    if (place.number != row || place.values.empty()) fill(place, row);
    return place.values;
  }

 private:
  struct Row {
    std::size_t number = 0;
    std::vector<float> values;
  };

  void fill(Row& place, std::size_t row) {
    place.number = row;
    place.values.resize(columns_.size() * image_.channels);
    const std::uint8_t* line = image_.pixels.data() + row * image_.width * image_.channels;
    if (image_.channels == 1) {
      mix<1>(line, place.values.data());
    } else {
      mix<3>(line, place.values.data());
    }
  }

  // Handles all channels of a pixel together, so that a large image is read once, front to back.
  template <std::size_t channels>
  void mix(const std::uint8_t* line, float* to) const {
    for (const Taps& taps : columns_) {
      const std::uint8_t* from = line + taps.first * channels;
      std::array<float, channels> sum{};
      for (const float weight : taps.weights) {
        for (std::size_t c = 0; c < channels; ++c) sum[c] += weight * static_cast<float>(from[c]);
        from += channels;
      }
      to = std::copy(sum.begin(), sum.end(), to);
    }
  }

  const codec::Image& image_;
  const std::span<const Taps> columns_;
  std::array<Row, 2> rows_;
};

}  // namespace

std::vector<float> resize(const codec::Image& image, std::size_t width, std::size_t height,
                          Filter filter) {
  if (image.width == width && image.height == height)
    return {image.pixels.begin(), image.pixels.end()};
  const std::vector<Taps> columns = taps_of(image.width, width, filter);
  const std::vector<Taps> lines = taps_of(image.height, height, filter);
  Rows rows(image, columns);
  const std::size_t line_size = width * image.channels;
  std::vector<float> out(line_size * height);
  for (std::size_t y = 0; y < height; ++y) {
    float* const to = out.data() + y * line_size;
    for (std::size_t i = 0; i < lines[y].weights.size(); ++i) {
      const float weight = lines[y].weights[i];
      const std::vector<float>& row = rows.at(lines[y].first + i);
      for (std::size_t x = 0; x < line_size; ++x) to[x] += weight * row[x];
    }
  }
  return out;
}

}  // namespace varda::transform::internal
