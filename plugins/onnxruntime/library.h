// ONNX Runtime's library, opened at run time.
#pragma once

#include <onnxruntime_c_api.h>
#include <string>

#include "infer/plugin_abi.h"

namespace varda_onnxruntime {

struct Library {
  const OrtApi* api = nullptr;
  OrtEnv* env = nullptr;
  std::string version;
  std::string problem;  // why it could not be opened; "" if it was
};

/// Opened at the first call, once, for the life of the process. Thread-safe.
const Library& library();

/// Where ONNX Runtime's own messages go; set before library().
void set_host(const varda_engine_host* host);

/// The words of a status, which is freed; "" for none.
std::string take(OrtStatus* status);

}  // namespace varda_onnxruntime
