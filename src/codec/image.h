// Images as files: JPEG and PNG, decoded. No I/O.
//
// Limits are checked against the header before decoding. An image is complete or an error: a
// truncated one is never padded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace varda::codec {

/// 8 bits per channel, by rows, interleaved channels.
struct Image {
  std::size_t width = 0;
  std::size_t height = 0;
  std::size_t channels = 1;  // 1 grey; 3 red, green, blue
  std::vector<std::uint8_t> pixels;
};

enum class ImageFormat : std::uint8_t { kJpeg, kPng };

struct ImageHeader {
  ImageFormat format = ImageFormat::kPng;
  std::size_t width = 0;
  std::size_t height = 0;
};

inline constexpr std::size_t kImagePixelsMax = std::size_t{64} << 20;

/// Detects the format by the first bytes.
std::optional<ImageFormat> image_format(std::string_view bytes);

/// Reads the header only. kInvalid: neither JPEG nor PNG, or a truncated header.
Result<ImageHeader> read_image_header(std::string_view bytes);

/// Grey for grey files, else RGB. Drops alpha, keeps the upper 8 of 16 bits, resolves palettes.
/// Ignores EXIF orientation, gamma and colour profiles. kInvalid: neither JPEG nor PNG, truncated,
/// or more than `pixels_max` pixels. kUnsupported: a JPEG in CMYK. `memory`: the pixels of an
/// earlier image, which the result uses again.
Result<Image> decode_image(std::string_view bytes, std::size_t pixels_max = kImagePixelsMax,
                           std::vector<std::uint8_t> memory = {});

/// A PNG with 8 bits per channel. kInvalid: no pixels, or a pixel count that differs from the
/// sizes.
Result<std::string> encode_png(const Image& image);

}  // namespace varda::codec
