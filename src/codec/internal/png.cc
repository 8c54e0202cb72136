#include "codec/internal/png.h"

#include <cstdlib>
#include <limits>
#include <memory>
#include <spng.h>
#include <string>
#include <utility>

namespace varda::codec::internal {
namespace {

using Context = std::unique_ptr<spng_ctx, void (*)(spng_ctx*)>;

constexpr std::uint32_t kSideMax = 1 << 20;

Error bad(int code) { return Error(Code::kInvalid, std::string("PNG: ") + spng_strerror(code)); }

Result<spng_ihdr> open(const Context& png, std::string_view bytes) {
  if (png == nullptr) return Error(Code::kExhausted, "no memory to decode a PNG");
  spng_set_image_limits(png.get(), kSideMax, kSideMax);
  spng_set_chunk_limits(png.get(), std::size_t{16} << 20, std::size_t{64} << 20);
  if (const int code = spng_set_png_buffer(png.get(), bytes.data(), bytes.size()); code != 0)
    return bad(code);
  spng_ihdr header{};
  if (const int code = spng_get_ihdr(png.get(), &header); code != 0) return bad(code);
  return header;
}

// The library lacks 8-bit output for this grey form, so it was decoded as RGB: keep one of three
// equal channels.
void collapse(Image& image) {
  const std::size_t count = image.width * image.height;
  for (std::size_t i = 0; i < count; ++i) image.pixels[i] = image.pixels[3 * i];
  image.pixels.resize(count);
  image.channels = 1;
}

}  // namespace

Result<ImageHeader> png_header(std::string_view bytes) {
  const Context png(spng_ctx_new(0), spng_ctx_free);
  TRY(const spng_ihdr header, open(png, bytes));
  return ImageHeader{ImageFormat::kPng, header.width, header.height};
}

Result<Image> decode_png(std::string_view bytes, std::size_t pixels_max,
                         std::vector<std::uint8_t> memory) {
  const Context png(spng_ctx_new(0), spng_ctx_free);
  TRY(const spng_ihdr header, open(png, bytes));
  if (std::uint64_t{header.width} * header.height > pixels_max) {
    return Error(Code::kInvalid, "PNG: " + std::to_string(header.width) + "x" +
                                     std::to_string(header.height) + " pixels are too many");
  }
  const bool grey = header.color_type == SPNG_COLOR_TYPE_GRAYSCALE ||
                    header.color_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA;
  const bool grey_at_once = header.color_type == SPNG_COLOR_TYPE_GRAYSCALE && header.bit_depth <= 8;
  const int format = grey_at_once ? SPNG_FMT_G8 : SPNG_FMT_RGB8;
  std::size_t size = 0;
  if (const int code = spng_decoded_image_size(png.get(), format, &size); code != 0)
    return bad(code);
  Image out;
  out.width = header.width;
  out.height = header.height;
  out.channels = grey_at_once ? 1 : 3;
  if (size != out.height * out.width * out.channels)
    return Error(Code::kInternal, "PNG: unexpected size of the decoded image");
  out.pixels = std::move(memory);
  out.pixels.resize(size);
  if (const int code = spng_decode_image(png.get(), out.pixels.data(), size, format, 0); code != 0)
    return bad(code);
  // The chunks after the pixels show that the file is complete.
  if (const int code = spng_decode_chunks(png.get()); code != 0) return bad(code);
  if (grey && !grey_at_once) collapse(out);
  return out;
}

}  // namespace varda::codec::internal

namespace varda::codec {

Result<std::string> encode_png(const Image& image) {
  constexpr std::size_t kMax = std::numeric_limits<std::int32_t>::max();
  const bool sizes =
      image.width > 0 && image.height > 0 && image.width <= kMax && image.height <= kMax;
  if (!sizes || (image.channels != 1 && image.channels != 3) ||
      image.pixels.size() / image.width / image.height != image.channels ||
      image.pixels.size() % (image.width * image.height) != 0) {
    return Error(Code::kInvalid, "no image of " + std::to_string(image.width) + "x" +
                                     std::to_string(image.height) + " pixels in " +
                                     std::to_string(image.channels) + " channels");
  }
  const std::unique_ptr<spng_ctx, void (*)(spng_ctx*)> png(spng_ctx_new(SPNG_CTX_ENCODER),
                                                           spng_ctx_free);
  if (png == nullptr) return Error(Code::kExhausted, "no memory to write a PNG");
  spng_ihdr header{};
  header.width = static_cast<std::uint32_t>(image.width);
  header.height = static_cast<std::uint32_t>(image.height);
  header.bit_depth = 8;
  header.color_type = image.channels == 1 ? SPNG_COLOR_TYPE_GRAYSCALE : SPNG_COLOR_TYPE_TRUECOLOR;
  int code = spng_set_option(png.get(), SPNG_ENCODE_TO_BUFFER, 1);
  if (code == 0) code = spng_set_ihdr(png.get(), &header);
  if (code == 0)
    code = spng_encode_image(png.get(), image.pixels.data(), image.pixels.size(), SPNG_FMT_PNG,
                             SPNG_ENCODE_FINALIZE);
  std::size_t size = 0;
  if (code == 0) {
    const std::unique_ptr<void, void (*)(void*)> bytes(spng_get_png_buffer(png.get(), &size, &code),
                                                       std::free);
    if (bytes != nullptr && code == 0)
      return std::string(static_cast<const char*>(bytes.get()), size);
  }
  return Error(Code::kInternal, std::string("PNG: ") + spng_strerror(code));
}

}  // namespace varda::codec
