// Images of other sizes.
#pragma once

#include <vector>

#include "codec/image.h"
#include "transform/declaration.h"

namespace varda::transform::internal {

/// The image in `width` x `height`, channels of a pixel together, values 0 to 255, not rounded. With s = old size / new size, along
/// each axis
///   nearest   takes the pixel floor((x + 0.5) * s)
///   bilinear  looks at (x + 0.5) * s - 0.5, and mixes the two pixels beside it by their nearness; beyond the edge there is the
///   edge area      is the mean over [x * s, (x + 1) * s), pixels in part by their share
std::vector<float> resize(const codec::Image& image, std::size_t width, std::size_t height, Filter filter);

}  // namespace varda::transform::internal
