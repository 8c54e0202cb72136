// Another number of classes for a model: its last layer is replaced by an untrained one.
//
//   TRY(const std::string file, replace_head(std::move(bytes), 12, seed));
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace varda::train {

/// The layer is Gemm or MatMul with weights of the file, and Add with a bias where the model has
/// one. Between the layer and the first output may be Softmax, LogSoftmax, Sigmoid, Identity and
/// Dropout. The new weights are uniform within ±sqrt(6 / inputs) (He et al. 2015), the new bias
/// is 0. kInvalid: not an ONNX model. kUnsupported: another layer; the message names the node.
Result<std::string> replace_head(std::string file, std::int64_t classes, std::uint64_t seed);

}  // namespace varda::train
