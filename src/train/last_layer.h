// The last layer of a model, for learners that replace the values of this layer only.
#pragma once

#include <string>

#include "base/result.h"
#include "onnx/model.h"
#include "train/slda.h"

namespace varda::train {

/// Gemm, or MatMul with Add, before the output; Softmax and the like may follow.
struct LastLayer {
  std::string features;  // the tensor that the layer reads: [N, inputs]
  std::string weights, bias;
  bool transposed = false;  // the weights are [classes, inputs]
  std::int64_t inputs = 0, classes = 0;
};

/// kUnsupported: another layer, without a bias or with factors; the message names the node.
Result<LastLayer> find_last_layer(const onnx::Model& model);

/// The model with the features as the only output.
std::string features_model(onnx::Model model, const LastLayer& layer);

/// The file with other values of the last layer. More classes than before change the shapes.
/// `layer` has the inputs of the file's layer.
Result<std::string> replace_last_layer(std::string file, const LinearLayer& layer);

}  // namespace varda::train
