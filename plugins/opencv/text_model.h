// Reads the inputs of Caffe and Darknet networks, whose structure is text.
#pragma once

#include <string_view>

#include "input.h"

namespace varda_opencv {

/// A Caffe .prototxt (NetParameter in src/caffe/proto/caffe.proto, https://github.com/BVLC/caffe):
/// layers of type Input, or the older `input` with `input_dim` or `input_shape`. The first size is
/// the batch, and becomes open.
Inputs inputs_of_prototxt(std::string_view text);

/// A Darknet .cfg (https://github.com/AlexeyAB/darknet): width, height and channels of [net].
Inputs inputs_of_cfg(std::string_view text);

}  // namespace varda_opencv
