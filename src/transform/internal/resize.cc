// Compiled by itself, with -O3 (CMakeLists.txt).
#include "transform/internal/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>

namespace varda::transform::internal {
namespace {

typedef std::uint8_t Bytes __attribute__((vector_size(16)));
typedef std::uint16_t Words __attribute__((vector_size(16)));
typedef std::int32_t Integers __attribute__((vector_size(16)));
typedef float Lanes __attribute__((vector_size(16)));

/// Four bytes as numbers. Zeros between the bytes widen them; __builtin_convertvector() from bytes
/// handles each by itself.
Lanes lanes_of(const std::uint8_t* from) {
  std::int32_t four = 0;
  std::memcpy(&four, from, sizeof four);
  const auto bytes = reinterpret_cast<Bytes>(Integers{four, 0, 0, 0});
  const auto words = reinterpret_cast<Words>(__builtin_shufflevector(
      bytes, Bytes{}, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
  const auto integers =
      reinterpret_cast<Integers>(__builtin_shufflevector(words, Words{}, 0, 8, 1, 9, 2, 10, 3, 11));
  return __builtin_convertvector(integers, Lanes);
}

}  // namespace

Resizer::Axis Resizer::axis(std::size_t old_size, std::size_t new_size, Filter filter) {
  const double scale = static_cast<double>(old_size) / static_cast<double>(new_size);
  Axis out;
  out.taps.reserve(new_size);
  const auto add = [&](std::size_t first, std::initializer_list<float> weights) {
    out.taps.push_back({first, out.weights.size(), weights.size()});
    out.weights.insert(out.weights.end(), weights);
  };
  const auto nearest = [&](double at) {
    add(std::min(static_cast<std::size_t>((at + 0.5) * scale), old_size - 1), {1.0f});
  };
  const auto bilinear = [&](double at) {
    const double place = (at + 0.5) * scale - 0.5;
    if (place <= 0) return add(0, {1.0f});
    if (place >= static_cast<double>(old_size - 1)) return add(old_size - 1, {1.0f});
    const double below = std::floor(place);
    const auto share = static_cast<float>(place - below);
    if (share == 0) return add(static_cast<std::size_t>(below), {1.0f});
    return add(static_cast<std::size_t>(below), {1.0f - share, share});
  };
  const auto area = [&](double at) {
    const double begin = at * scale;
    const double end = std::min((at + 1) * scale, static_cast<double>(old_size));
    Axis::Taps taps{std::min(static_cast<std::size_t>(begin), old_size - 1), out.weights.size(), 0};
    for (std::size_t i = taps.first; i < old_size && static_cast<double>(i) < end; ++i) {
      const double share =
          std::min(end, static_cast<double>(i + 1)) - std::max(begin, static_cast<double>(i));
      out.weights.push_back(static_cast<float>(share / (end - begin)));
      ++taps.count;
    }
    out.taps.push_back(taps);
  };
  for (std::size_t i = 0; i < new_size; ++i) {
    const auto at = static_cast<double>(i);
    filter == Filter::kNearest    ? nearest(at)
    : filter == Filter::kBilinear ? bilinear(at)
                                  : area(at);
  }
  return out;
}

Resizer::Resizer(const codec::Image& image, std::size_t width, std::size_t height, Filter filter)
    : image_(image),
      columns_(axis(image.width, width, filter)),
      lines_(axis(image.height, height, filter)),
      row_(width * image.channels) {}

void Resizer::mix_grey(const std::uint8_t* line, float* to) const {
  for (const Axis::Taps& taps : columns_.taps) {
    const std::uint8_t* const from = line + taps.first;
    const float* const weights = columns_.weights.data() + taps.weights_at;
    float sum = 0;
    for (std::size_t i = 0; i < taps.count; ++i) sum += weights[i] * static_cast<float>(from[i]);
    *to++ = sum;
  }
}

// Handles the channels of a pixel together, in a vector with the first byte of the next pixel. A
// pixel at the end of a line has no next one.
void Resizer::mix_colour(const std::uint8_t* line, float* to) const {
  for (const Axis::Taps& taps : columns_.taps) {
    const std::uint8_t* from = line + 3 * taps.first;
    const float* const weights = columns_.weights.data() + taps.weights_at;
    Lanes sum{};
    std::size_t i = 0;
    for (const std::size_t end = std::min(taps.count, image_.width - 1 - taps.first); i < end;
         ++i) {
      sum += weights[i] * lanes_of(from);
      from += 3;
    }
    if (i < taps.count)
      sum += weights[i] * Lanes{static_cast<float>(from[0]), static_cast<float>(from[1]),
                                static_cast<float>(from[2]), 0};
    std::memcpy(to, &sum, sizeof sum);  // the fourth value is overwritten by the next pixel
    to += 3;
  }
}

std::span<const float> Resizer::mixed(std::size_t old_row) {
  Mixed& place = mixed_[old_row % mixed_.size()];
  if (place.number != old_row || place.values.empty()) {
    place.number = old_row;
    place.values.resize(row_.size() + 1);  // mix_colour() writes four values a pixel
    const std::uint8_t* line = image_.pixels.data() + old_row * image_.width * image_.channels;
    if (image_.channels == 1) {
      mix_grey(line, place.values.data());
    } else {
      mix_colour(line, place.values.data());
    }
  }
  return std::span(place.values).first(row_.size());
}

std::span<const float> Resizer::row(std::size_t y) {
  const Axis::Taps& taps = lines_.taps[y];
  const float* const weights = lines_.weights.data() + taps.weights_at;
  const std::span<const float> first = mixed(taps.first);
  if (taps.count == 1 && weights[0] == 1) return first;
  std::ranges::transform(first, row_.begin(), [&](float value) { return weights[0] * value; });
  for (std::size_t i = 1; i < taps.count; ++i) {
    const std::span<const float> next = mixed(taps.first + i);
    for (std::size_t x = 0, count = row_.size(); x < count; ++x) row_[x] += weights[i] * next[x];
  }
  return row_;
}

std::vector<float> resize(const codec::Image& image, std::size_t width, std::size_t height,
                          Filter filter) {
  Resizer resizer(image, width, height, filter);
  std::vector<float> out;
  out.reserve(width * height * image.channels);
  for (std::size_t y = 0; y < height; ++y) {
    const auto row = resizer.row(y);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

}  // namespace varda::transform::internal
