// An ONNX model of as many matrix products as a figure needs: made here, so that its time is a number and not a download.
#pragma once

#include <string>

namespace varda::bench {

/// y = softmax(x · W · W … · W), `products` times; x and probabilities are FP32 [N,size]. All products share one matrix.
std::string matmul_model(int size, int products);

}  // namespace varda::bench
