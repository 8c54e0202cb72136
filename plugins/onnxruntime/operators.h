// Custom operators of varda-operators-onednn.so, which lies beside the engine if the build had
// oneDNN.
#pragma once

#include <string>

#include "operators_abi.h"

namespace varda_onnxruntime {

struct Operators {
  varda_operators_add_function add = nullptr;
  varda_operators_free_function free = nullptr;
  std::string problem;  // why the file could not be opened; "" on success
};

/// Opens the file on the first call, once per process. Thread-safe.
const Operators& operators();

}  // namespace varda_onnxruntime
