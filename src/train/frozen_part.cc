#include "train/frozen_part.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

namespace varda::train {
namespace {

using Names = std::set<std::string>;

// Without one of these, the beginning is cheaper than a copy of the features.
constexpr std::array<std::string_view, 7> kCostly = {"Conv",   "ConvTranspose", "MatMul", "Gemm",
                                                     "Einsum", "LSTM",          "GRU"};

bool has_subgraph(const onnx::Node& node) {
  return node.op_type == "If" || node.op_type == "Loop" || node.op_type == "Scan" ||
         node.op_type == "SequenceMap";
}

bool reads_any(const onnx::Node& node, const Names& names) {
  return std::any_of(node.inputs.begin(), node.inputs.end(),
                     [&](const std::string& input) { return names.contains(input); });
}

/// The model with these nodes, and the initializers that they read.
onnx::Model part_of(const onnx::Model& forward, std::vector<onnx::Node> nodes,
                    std::vector<onnx::Tensor> more, std::vector<onnx::ValueInfo> inputs,
                    std::vector<onnx::ValueInfo> outputs) {
  Names read;
  for (const onnx::Node& node : nodes) read.insert(node.inputs.begin(), node.inputs.end());
  onnx::Model out{.ir_version = forward.ir_version, .opsets = forward.opsets};
  out.graph.name = forward.graph.name;
  for (const onnx::Tensor& one : forward.graph.initializers)
    if (read.contains(one.name)) out.graph.initializers.push_back(one);
  for (onnx::Tensor& one : more) out.graph.initializers.push_back(std::move(one));
  out.graph.nodes = std::move(nodes);
  out.graph.inputs = std::move(inputs);
  out.graph.outputs = std::move(outputs);
  return out;
}

onnx::ValueInfo value_of(const std::string& name, const tensor::Shape& shape) {
  onnx::ValueInfo out{.name = name, .data_type = onnx::data_type_of(tensor::DType::kFp32)};
  auto& dims = out.shape.emplace();
  for (const std::int64_t size : shape) dims.push_back({.size = size});
  return out;
}

/// A tensor of integers, such as a shape, as a constant. Nothing: the values are not known.
std::optional<onnx::Tensor> constant_of(const std::string& name, const Fact& fact) {
  if (!fact.integers || fact.dtype != tensor::DType::kInt64) return std::nullopt;
  const auto value =
      tensor::Tensor::of<std::int64_t>(fact.dtype, fact.shape, std::span(*fact.integers));
  if (!value.ok()) return std::nullopt;
  return onnx::Tensor::of(name, *value);
}

}  // namespace

std::optional<SplitModel> split_frozen(const onnx::Model& forward, const Facts& facts,
                                       const Names& trained, const std::string& output) {
  Names from_input, from_weight = trained;
  for (const onnx::ValueInfo& input : forward.graph.inputs) from_input.insert(input.name);
  const Names inputs = from_input;
  std::vector<onnx::Node> beginning, rest;
  Names crossing;
  bool costly = false;
  for (const onnx::Node& node : forward.graph.nodes) {
    if (has_subgraph(node)) return std::nullopt;
    if (reads_any(node, from_weight)) {
      for (const std::string& input : node.inputs)
        if (from_input.contains(input) && !from_weight.contains(input)) crossing.insert(input);
      from_weight.insert(node.outputs.begin(), node.outputs.end());
      rest.push_back(node);
      continue;
    }
    if (reads_any(node, from_input)) {
      from_input.insert(node.outputs.begin(), node.outputs.end());
      costly = costly || std::find(kCostly.begin(), kCostly.end(), node.op_type) != kCostly.end();
      beginning.push_back(node);
      continue;
    }
    // A constant, which either part may read.
    beginning.push_back(node);
    rest.push_back(node);
  }
  if (!costly || !from_weight.contains(output)) return std::nullopt;
  std::vector<onnx::Tensor> constants;
  std::string features;
  for (const std::string& name : crossing) {
    const auto fact = facts.find(name);
    if (fact == facts.end()) return std::nullopt;
    if (auto constant = constant_of(name, fact->second)) {
      constants.push_back(std::move(*constant));
      continue;
    }
    if (!features.empty() || inputs.contains(name) || fact->second.dtype != tensor::DType::kFp32 ||
        fact->second.shape.empty())
      return std::nullopt;
    features = name;
  }
  const auto first = facts.find(forward.graph.inputs.front().name);
  if (features.empty() || first == facts.end() || first->second.shape.empty()) return std::nullopt;
  const tensor::Shape& shape = facts.at(features).shape;
  if (shape.front() != first->second.shape.front()) return std::nullopt;
  std::vector<onnx::ValueInfo> outputs;
  for (const onnx::ValueInfo& one : forward.graph.outputs)
    if (one.name == output) outputs.push_back(one);
  if (outputs.empty()) return std::nullopt;
  return SplitModel{.beginning = part_of(forward, std::move(beginning), {}, forward.graph.inputs,
                                         {value_of(features, shape)}),
                    .rest = part_of(forward, std::move(rest), std::move(constants),
                                    {value_of(features, shape)}, std::move(outputs)),
                    .features = features,
                    .shape = shape};
}

}  // namespace varda::train
