#include "oip/internal/png.h"

#include <limits>
#include <memory>
#include <spng.h>
#include <string>

namespace varda::oip::internal {
namespace {

Error bad(int code) { return Error(Code::kInvalid, std::string("PNG: ") + spng_strerror(code)); }

}  // namespace

Result<Images> decode_png(std::string_view bytes, std::size_t pixels_max) {
  const std::unique_ptr<spng_ctx, void (*)(spng_ctx*)> png(spng_ctx_new(0), spng_ctx_free);
  if (png == nullptr) return Error(Code::kExhausted, "no memory to decode a PNG");
  constexpr std::uint32_t kSideMax = 1 << 20;
  spng_set_image_limits(png.get(), kSideMax, kSideMax);
  spng_set_chunk_limits(png.get(), std::size_t{16} << 20, std::size_t{64} << 20);
  if (const int code = spng_set_png_buffer(png.get(), bytes.data(), bytes.size()); code != 0) return bad(code);
  spng_ihdr header{};
  if (const int code = spng_get_ihdr(png.get(), &header); code != 0) return bad(code);
  if (std::uint64_t{header.width} * header.height > pixels_max) {
    return Error(Code::kInvalid,
                 "PNG: " + std::to_string(header.width) + "x" + std::to_string(header.height) + " pixels are too many");
  }
  // Grey of 16 bits or with alpha has no 8-bit grey form in the library: it becomes colour, which turns grey again where a model
  // wants it.
  const bool grey = header.color_type == SPNG_COLOR_TYPE_GRAYSCALE && header.bit_depth <= 8;
  const int format = grey ? SPNG_FMT_G8 : SPNG_FMT_RGB8;
  std::size_t size = 0;
  if (const int code = spng_decoded_image_size(png.get(), format, &size); code != 0) return bad(code);
  Images out{1, header.height, header.width, grey ? std::size_t{1} : std::size_t{3}, std::vector<std::uint8_t>(size)};
  if (size != out.height * out.width * out.channels) return Error(Code::kInternal, "PNG: unexpected size of the decoded image");
  if (const int code = spng_decode_image(png.get(), out.pixels.data(), size, format, 0); code != 0) return bad(code);
  return out;
}

}  // namespace varda::oip::internal
