// One version of ONNX's operators for every model, so that later code knows one form of each.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "onnx/model.h"

namespace varda::onnx {

/// The oldest version that upgrade() accepts, and the version that upgrade() makes at least.
inline constexpr std::int64_t kOpsetMin = 11, kOpset = 17;

/// Rewrites a model of opset 11 to 16 for opset 17; a newer model stays as it is. Also turns
/// Constant nodes into initializers. kUnsupported: an older model, or subgraphs with opset 11
/// or 12.
Status upgrade(Model& model);

}  // namespace varda::onnx
