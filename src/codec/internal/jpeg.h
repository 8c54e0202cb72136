// JPEG images.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "codec/image.h"

namespace varda::codec::internal {

/// As read_image_header() and decode_image().
Result<ImageHeader> jpeg_header(std::string_view bytes);
Result<Image> decode_jpeg(std::string_view bytes, std::size_t pixels_max,
                          std::vector<std::uint8_t> memory);

}  // namespace varda::codec::internal
