// The samples of one request as files: images as they came, tensors as .npy.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serving/inference.h"

namespace varda::serving::sampling {

/// The facts of a version that rows need. A copy does not keep the version in memory.
struct InputShape {
  std::string image_input;  // name of the input of images; "": the model takes tensors
  bool batches = false;     // the first dimension counts samples
};
InputShape input_shape_of(const ModelVersion& version);

struct Row {
  std::string_view format;  // spool::Facts::kPng, ...
  std::string bytes;
};
/// kUnsupported: several inputs, or values that neither image files nor .npy can hold.
Result<std::vector<Row>> rows_of(const InferCall& call, const InputShape& shape,
                                 const oip::Limits& limits);

}  // namespace varda::serving::sampling
