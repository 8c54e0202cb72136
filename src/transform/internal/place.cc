// Compiled by itself, with -O3 (CMakeLists.txt).
#include "transform/internal/place.h"

#include <algorithm>
#include <cmath>

#include "tensor/half.h"

namespace varda::transform::internal {
namespace {

using tensor::DType;

struct ToFloat {
  using Type = float;
  static float of(float value) { return value; }
};
struct ToDouble {
  using Type = double;
  static double of(float value) { return static_cast<double>(value); }
};
struct ToHalf {
  using Type = std::uint16_t;
  static std::uint16_t of(float value) { return tensor::half_of(value); }
};
struct ToByte {
  using Type = std::uint8_t;
  static std::uint8_t of(float value) {
    return static_cast<std::uint8_t>(std::clamp(std::floor(value + 0.5f), 0.0f, 255.0f));
  }
};

/// Calls `function` with the conversion to the type of the tensor.
template <typename Function>
void with_type(DType dtype, Function function) {
  switch (dtype) {
    case DType::kFp64:
      return function(ToDouble());
    case DType::kFp16:
      return function(ToHalf());
    case DType::kUint8:
      return function(ToByte());
    default:
      return function(ToFloat());
  }
}

}  // namespace

// The same byte of a channel always becomes the same value: 256 values a channel are computed, and
// the pixels are only looked up.
void Placing::bytes(std::span<const std::uint8_t> pixels, const std::array<float, 256>& tones,
                    tensor::Tensor& out, std::size_t image) const {
  with_type(out.dtype(), [&](auto conversion) {
    using To = typename decltype(conversion)::Type;
    std::array<std::array<To, 256>, 3> tables;  // in the order of the pixels' channels
    for (std::size_t c = 0; c < channels; ++c) {
      const std::size_t from = reversed ? 2 - c : c;
      for (std::size_t i = 0; i < tones.size(); ++i)
        tables[from][i] = conversion.of(tones[i] * factor[c] + offset[c]);
    }
    To* const to = out.mutable_values<To>().data() + image * area * channels;
    const std::uint8_t* const from = pixels.data();
    const auto& [red, green, blue] = tables;
    if (channels == 1) {
      for (std::size_t i = 0; i < area; ++i) to[i] = red[from[i]];
    } else if (planes) {
      To* const reds = to + (reversed ? 2 * area : 0);
      To* const greens = to + area;
      To* const blues = to + (reversed ? 0 : 2 * area);
      for (std::size_t i = 0; i < area; ++i) {
        reds[i] = red[from[3 * i]];
        greens[i] = green[from[3 * i + 1]];
        blues[i] = blue[from[3 * i + 2]];
      }
    } else {
      const std::size_t first = reversed ? 2 : 0;
      for (std::size_t i = 0; i < 3 * area; i += 3) {
        to[i + first] = red[from[i]];
        to[i + 1] = green[from[i + 1]];
        to[i + 2 - first] = blue[from[i + 2]];
      }
    }
  });
}

void Placing::floats(std::span<const float> pixels, std::size_t first, tensor::Tensor& out,
                     std::size_t image) const {
  with_type(out.dtype(), [&](auto conversion) {
    using To = typename decltype(conversion)::Type;
    const std::size_t count = pixels.size() / channels;
    To* const to = out.mutable_values<To>().data() + image * area * channels;
    for (std::size_t c = 0; c < channels; ++c) {
      const float* const from = pixels.data() + (reversed ? 2 - c : c);
      const float by = factor[c], plus = offset[c];
      if (planes || channels == 1) {
        To* const plane = to + c * area + first;
        for (std::size_t i = 0; i < count; ++i)
          plane[i] = conversion.of(from[i * channels] * by + plus);
      } else {
        To* const interleaved = to + first * 3 + c;
        for (std::size_t i = 0; i < count; ++i)
          interleaved[3 * i] = conversion.of(from[3 * i] * by + plus);
      }
    }
  });
}

}  // namespace varda::transform::internal
