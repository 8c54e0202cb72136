// Types and shapes of all tensors of a model, found by loading it, or by one run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "infer/engine.h"
#include "onnx/model.h"
#include "tensor/tensor.h"

namespace varda::train {

struct Fact {
  tensor::DType dtype = tensor::DType::kFp32;
  tensor::Shape shape;
  std::optional<std::vector<std::int64_t>> integers;  // the values of a small tensor of integers
};
using Facts = std::map<std::string, Fact>;

/// Replaces each If by the branch that runs, where shapes and constants alone decide; exporters
/// write such nodes for sizes that they do not know. Then loads the model for one batch with every
/// tensor as an output, and runs the model unless the engine inferred all shapes. The engine thus
/// finds the shapes of any operator, also those that an exporter computes in the graph. The facts
/// hold for batches of this size. A run needs the memory of all activations.
Result<Facts> trace(infer::Engine& engine, onnx::Model& model,
                    std::span<const tensor::Named> batch);

}  // namespace varda::train
