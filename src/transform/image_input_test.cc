// Every value of a tensor against the definition of the steps, bit by bit: a model must see in
// serving what it saw in training, whichever way an image took.
#include "transform/image_input.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "tensor/half.h"

namespace varda::transform {
namespace image_input_test {

using tensor::DType;
using tensor::Tensor;

/// A new position along an axis: old pixels and their weights.
std::vector<std::pair<std::size_t, float>> taps(Filter filter, std::size_t old_size,
                                                std::size_t new_size, std::size_t at) {
  const double scale = static_cast<double>(old_size) / static_cast<double>(new_size);
  const double last = static_cast<double>(old_size - 1);
  std::vector<std::pair<std::size_t, float>> out;
  if (filter == Filter::kNearest) {
    const double place = std::min(std::floor((static_cast<double>(at) + 0.5) * scale), last);
    out.emplace_back(static_cast<std::size_t>(place), 1.0f);
  } else if (filter == Filter::kBilinear) {
    const double place = std::clamp((static_cast<double>(at) + 0.5) * scale - 0.5, 0.0, last);
    const auto below = static_cast<std::size_t>(place);
    const auto share = static_cast<float>(place - std::floor(place));
    out.emplace_back(below, 1.0f - share);
    if (share > 0) out.emplace_back(below + 1, share);
  } else {
    const double begin = static_cast<double>(at) * scale;
    const double end = std::min(static_cast<double>(at + 1) * scale, static_cast<double>(old_size));
    for (auto i = static_cast<std::size_t>(begin); i < old_size && static_cast<double>(i) < end;
         ++i)
      out.emplace_back(i, static_cast<float>((std::min(end, static_cast<double>(i + 1)) -
                                              std::max(begin, static_cast<double>(i))) /
                                             (end - begin)));
  }
  return out;
}

/// Columns first, then rows. Tensors of UINT8 and FP16 are compared as numbers.
std::vector<float> literally(const codec::Image& image, std::size_t width, std::size_t height,
                             Filter filter, const ImageStep& step, DType dtype, bool planes) {
  const std::size_t channels = image.channels;
  std::vector<float> out(width * height * channels);
  for (std::size_t y = 0; y < height; ++y) {
    for (std::size_t x = 0; x < width; ++x) {
      for (std::size_t c = 0; c < channels; ++c) {
        const std::size_t from = step.channels == Channels::kBgr ? 2 - c : c;
        float value = 0;
        for (const auto& [row, row_weight] : taps(filter, image.height, height, y)) {
          float mixed = 0;
          for (const auto& [column, weight] : taps(filter, image.width, width, x))
            mixed += weight * static_cast<float>(
                                  image.pixels[(row * image.width + column) * channels + from]);
          value += row_weight * mixed;
        }
        const double std_dev = step.std.empty() ? 1 : step.std[c];
        const double mean = step.mean.empty() ? 0 : step.mean[c];
        value =
            value * static_cast<float>(step.scale / std_dev) + static_cast<float>(-mean / std_dev);
        if (dtype == DType::kUint8) value = std::clamp(std::floor(value + 0.5f), 0.0f, 255.0f);
        if (dtype == DType::kFp16) value = tensor::float_of(tensor::half_of(value));
        const std::size_t pixel = y * width + x;
        out[planes ? c * width * height + pixel : pixel * channels + c] = value;
      }
    }
  }
  return out;
}

std::vector<float> values(const Tensor& tensor) {
  std::vector<float> out;
  switch (tensor.dtype()) {
    case DType::kFp64:
      for (const double value : tensor.values<double>()) out.push_back(static_cast<float>(value));
      break;
    case DType::kFp16:
      for (const std::uint16_t value : tensor.values<std::uint16_t>())
        out.push_back(tensor::float_of(value));
      break;
    case DType::kUint8:
      for (const std::uint8_t value : tensor.values<std::uint8_t>())
        out.push_back(static_cast<float>(value));
      break;
    default:
      out.assign(tensor.values<float>().begin(), tensor.values<float>().end());
  }
  return out;
}

codec::Image noise(std::size_t width, std::size_t height, std::size_t channels) {
  codec::Image out{width, height, channels, {}};
  std::uint32_t state = 17;
  while (out.pixels.size() < width * height * channels) {
    state = state * 1664525 + 1013904223;
    out.pixels.push_back(static_cast<std::uint8_t>(state >> 24));
  }
  return out;
}

constexpr std::size_t kWidth = 6, kHeight = 5;

struct Way {
  Channels channels = Channels::kRgb;
  bool planes = true;
  DType dtype = DType::kFp32;
  Filter filter = Filter::kBilinear;

  std::size_t count() const { return channels == Channels::kGrey ? 1 : 3; }
  ImageStep step() const {
    ImageStep out;
    out.channels = channels;
    out.filter = filter;
    out.layout = planes ? "NCHW" : "NHWC";
    if (dtype == DType::kUint8) return out;
    out.scale = 1 / 255.0;
    out.mean = {0.485, 0.456, 0.406};
    out.std = {0.229, 0.224, 0.225};
    out.mean.resize(count());
    out.std.resize(count());
    return out;
  }
  ImageInput input() const {
    const auto channel_count = static_cast<std::int64_t>(count());
    tensor::Spec spec{"x", dtype, {-1, channel_count, kHeight, kWidth}};
    if (!planes) spec.shape = {-1, kHeight, kWidth, channel_count};
    return ImageInput::bind(step(), {&spec, 1}, {}).value();
  }
};

std::vector<Way> ways() {
  std::vector<Way> out;
  for (const Channels channels : {Channels::kRgb, Channels::kBgr, Channels::kGrey})
    for (const bool planes : {true, false})
      for (const DType dtype : {DType::kFp32, DType::kFp64, DType::kFp16, DType::kUint8})
        for (const Filter filter : {Filter::kNearest, Filter::kBilinear, Filter::kArea})
          out.push_back({channels, planes, dtype, filter});
  return out;
}

const std::vector<std::pair<std::size_t, std::size_t>> kSizes = {
    {kWidth, kHeight}, {1, 1}, {13, 11}, {3, 20}, {kWidth, 7}, {2 * kWidth, 2 * kHeight}};

TEST(ImageInputs, ValuesEqualTheDefinition) {
  for (const Way& way : ways()) {
    const ImageInput input = way.input();
    for (const auto& [width, height] : kSizes) {
      const codec::Image image = noise(width, height, way.count());
      Tensor out = Tensor::allocate(way.dtype, input.shape(2)).value();
      codec::Image written = image;
      input.write(written, out, 1);
      std::vector<float> want(out.size() / 2);  // the first image is left alone
      const auto second = literally(image, kWidth, kHeight, way.filter, way.step(), way.dtype,
                                    way.planes || way.channels == Channels::kGrey);
      want.insert(want.end(), second.begin(), second.end());
      EXPECT_EQ(values(out), want) << width << "x" << height;
    }
  }
}

TEST(ImageInputs, BothHalvesGiveTheValuesOfTheWhole) {
  for (const Way& way : ways()) {
    const ImageInput input = way.input();
    Pixels memory;
    for (const auto& [width, height] : kSizes) {
      codec::Image image = noise(width, height, way.count());
      Tensor halves = Tensor::allocate(way.dtype, input.shape(1)).value();
      Tensor whole = Tensor::allocate(way.dtype, input.shape(1)).value();
      memory = input.pixels(image, std::move(memory));
      input.place(memory, halves, 0);
      input.write(image, whole, 0);
      EXPECT_TRUE(std::ranges::equal(halves.bytes(), whole.bytes())) << width << "x" << height;
    }
  }
}

}  // namespace image_input_test
}  // namespace varda::transform
