#include "codec/image.h"

#include <utility>

#include "codec/internal/jpeg.h"
#include "codec/internal/png.h"

namespace varda::codec {
namespace {

constexpr std::string_view kPngMagic = "\x89PNG\r\n\x1a\n";
constexpr std::string_view kJpegMagic = "\xff\xd8\xff";

Error neither() { return Error(Code::kInvalid, "neither a JPEG nor a PNG"); }

}  // namespace

std::optional<ImageFormat> image_format(std::string_view bytes) {
  if (bytes.substr(0, kPngMagic.size()) == kPngMagic) return ImageFormat::kPng;
  if (bytes.substr(0, kJpegMagic.size()) == kJpegMagic) return ImageFormat::kJpeg;
  return std::nullopt;
}

Result<ImageHeader> read_image_header(std::string_view bytes) {
  const auto format = image_format(bytes);
  if (!format) return neither();
  return *format == ImageFormat::kPng ? internal::png_header(bytes) : internal::jpeg_header(bytes);
}

Result<Image> decode_image(std::string_view bytes, std::size_t pixels_max,
                           std::vector<std::uint8_t> memory) {
  const auto format = image_format(bytes);
  if (!format) return neither();
  return *format == ImageFormat::kPng ? internal::decode_png(bytes, pixels_max, std::move(memory))
                                      : internal::decode_jpeg(bytes, pixels_max, std::move(memory));
}

}  // namespace varda::codec
