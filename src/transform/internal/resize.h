// Resizing of images.
#pragma once

#include <vector>

#include "codec/image.h"
#include "transform/declaration.h"

namespace varda::transform::internal {

/// The image in `width` x `height`, channels interleaved, values 0 to 255, unrounded. With s = old
/// size / new size, along each axis
///   nearest   takes the pixel floor((x + 0.5) * s)
///   bilinear  samples at (x + 0.5) * s - 0.5, as the mean of both neighbours weighted by distance;
///             the edge pixel continues beyond the edge
///   area      is the mean over [x * s, (x + 1) * s), with partial pixels weighted by their share
std::vector<float> resize(const codec::Image& image, std::size_t width, std::size_t height,
                          Filter filter);

}  // namespace varda::transform::internal
