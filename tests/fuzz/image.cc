// JPEG and PNG files from requests.
#include "codec/image.h"

#include "base/check.h"
#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = varda::fuzz::Input(data, size).rest();
  // Large enough for every branch, small enough for many runs a second.
  constexpr std::size_t kPixelsMax = 1 << 16;
  const auto header = varda::codec::read_image_header(bytes);
  const auto image = varda::codec::decode_image(bytes, kPixelsMax);
  if (!image.ok()) return 0;
  CHECK(header.ok() && header->width == image->width && header->height == image->height);
  CHECK(image->channels == 1 || image->channels == 3);
  CHECK(image->width > 0 && image->height > 0 && image->width * image->height <= kPixelsMax);
  CHECK(image->pixels.size() == image->width * image->height * image->channels);
  const auto written = varda::codec::encode_png(*image);
  CHECK(written.ok());
  const auto again = varda::codec::decode_image(*written, kPixelsMax);
  CHECK(again.ok() && again->pixels == image->pixels);
  return 0;
}
