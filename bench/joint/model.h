// Generates an ONNX model of matrix products, so that a benchmark chooses the run time without a
// download.
#pragma once

#include <string>

namespace varda::bench {

/// y = softmax(x · W · W … · W), `products` times; x and probabilities are FP32 [N,size]. All
/// products share one matrix.
std::string matmul_model(int size, int products);

}  // namespace varda::bench
