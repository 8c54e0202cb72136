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
  std::string problem;  // why it could not be opened; "" on success
};

/// Opens the library on the first call, once per process. Thread-safe.
const Library& library();

/// Sets the target of ONNX Runtime's own messages; call before library().
void set_host(const varda_engine_host* host);

/// The message of a status, which is freed; "" for null.
std::string take(OrtStatus* status);

}  // namespace varda_onnxruntime
