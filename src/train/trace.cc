#include "train/trace.h"

#include <algorithm>

namespace varda::train {
namespace {

constexpr std::size_t kIntegersMax = 256;  // more than axes, sizes and pads ever need

Fact fact_of(const tensor::Tensor& value) {
  Fact out{value.dtype(), value.shape(), {}};
  if (value.size() > kIntegersMax) return out;
  if (value.dtype() == tensor::DType::kInt64) {
    const auto values = value.values<std::int64_t>();
    out.integers.emplace(values.begin(), values.end());
  } else if (value.dtype() == tensor::DType::kInt32) {
    const auto values = value.values<std::int32_t>();
    out.integers.emplace(values.begin(), values.end());
  } else if (value.dtype() == tensor::DType::kBool) {
    const auto values = value.values<std::uint8_t>();
    out.integers.emplace(values.begin(), values.end());
  }
  return out;
}

}  // namespace

Result<Facts> trace(infer::Engine& engine, const onnx::Model& model,
                    std::span<const tensor::Named> batch) {
  Facts out;
  for (const onnx::Tensor& initializer : model.graph.initializers) {
    const auto dtype = onnx::dtype_of(initializer.data_type);
    if (!dtype) continue;
    Fact fact{*dtype, initializer.dims, {}};
    if (const auto count = tensor::elements(initializer.dims);
        count.ok() && *count <= kIntegersMax && !initializer.external) {
      TRY(const tensor::Tensor value, initializer.value());
      fact = fact_of(value);
    }
    out.emplace(initializer.name, std::move(fact));
  }
  for (const tensor::Named& input : batch) out.emplace(input.name, fact_of(input.tensor));

  onnx::Model all = model;
  for (const onnx::Node& node : model.graph.nodes)
    for (const std::string& output : node.outputs)
      if (!output.empty() && std::none_of(all.graph.outputs.begin(), all.graph.outputs.end(),
                                          [&](const auto& one) { return one.name == output; }))
        all.graph.outputs.push_back({.name = output});
  const std::string bytes = onnx::serialize(all);
  // Without optimization the engine keeps every node, so each tensor exists.
  TRY(const auto loaded,
      engine.load({.memory_arena = false, .options = {{"optimization", "none"}}, .model = bytes}));
  TRY(const auto outputs, loaded->run(batch, {}));
  for (const tensor::Named& output : outputs) out[output.name] = fact_of(output.tensor);
  return out;
}

}  // namespace varda::train
