// New weights in an otherwise untouched model file.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tensor/tensor.h"

namespace varda::onnx {

/// The file with other values for these weights, and every other byte as before. A weight is an
/// initializer, or the output of a Constant node. kInvalid: not an ONNX file, or a weight has
/// another type or shape. kNotFound: no such weight. kUnsupported: its values are in another file.
Result<std::string> replace_weights(std::string_view file,
                                    const std::map<std::string, tensor::Tensor>& weights);

}  // namespace varda::onnx
