// Random changes of an image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "samples/samples.h"

namespace varda::samples::internal {

/// Changes an image of values 0 to 255 with interleaved channels, in this order: flip, shift,
/// contrast around the image's mean, brightness. Seed and index determine the change.
void change(std::vector<float>& pixels, std::size_t width, std::size_t height, std::size_t channels,
            const Augment& augment, std::uint64_t seed, std::size_t index);

}  // namespace varda::samples::internal
