// PNG images, decoded.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/result.h"
#include "oip/images.h"

namespace varda::oip::internal {

/// One image: grey where the file is grey, else colour; 8 bits a channel. kInvalid: torn, or more pixels than `pixels_max`.
Result<Images> decode_png(std::string_view bytes, std::size_t pixels_max);

}  // namespace varda::oip::internal
