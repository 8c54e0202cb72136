// Images as files: JPEG and PNG, decoded. No I/O.
//
// Limits are compared with what a file's header says before anything is decoded. An image is whole or an error: a torn one is never
// filled up with grey.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace varda::codec {

/// 8 bits a channel, row by row, the channels of a pixel together.
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

/// By the first bytes.
std::optional<ImageFormat> image_format(std::string_view bytes);

/// What the file says of itself; nothing is decoded. kInvalid: neither JPEG nor PNG, or a torn header.
Result<ImageHeader> read_image_header(std::string_view bytes);

/// Grey where the file is grey, else colour. Alpha is dropped, 16 bits become 8 (the upper ones), palettes their colours; the
/// orientation that EXIF may tell, gamma and colour profiles are not applied. kInvalid: neither JPEG nor PNG, torn, or more than
/// `pixels_max`. kUnsupported: a JPEG in CMYK.
Result<Image> decode_image(std::string_view bytes, std::size_t pixels_max = kImagePixelsMax);

/// A PNG of 8 bits a channel. kInvalid: no pixels, or not as many as the sizes say.
Result<std::string> encode_png(const Image& image);

}  // namespace varda::codec
