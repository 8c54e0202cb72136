// Random changes of an image.
#pragma once

#include <cstddef>
#include <cstdint>

#include "samples/samples.h"
#include "transform/image_input.h"

namespace varda::samples::internal {

/// Changes an image in this order: flip, shift, contrast around the image's mean, brightness. Seed
/// and index determine the change.
void change(transform::Pixels& pixels, std::size_t width, std::size_t height, std::size_t channels,
            const Augment& augment, std::uint64_t seed, std::size_t index);

}  // namespace varda::samples::internal
