#include "train/trace.h"

#include <algorithm>
#include <set>
#include <string>

#include "onnx/upgrade.h"

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

/// Gives the inputs the sizes of the batch, so that the engine infers shapes without open sizes.
/// False: the batch does not fit the declared shapes, or an input has none.
bool fix_sizes(onnx::Graph& graph, std::span<const tensor::Named> batch) {
  for (onnx::ValueInfo& input : graph.inputs) {
    const auto given = std::find_if(batch.begin(), batch.end(),
                                    [&](const auto& one) { return one.name == input.name; });
    if (given == batch.end() || !input.shape ||
        input.shape->size() != given->tensor.shape().size() ||
        input.data_type != onnx::data_type_of(given->tensor.dtype()))
      return false;
    for (std::size_t i = 0; i < input.shape->size(); ++i) {
      onnx::ValueInfo::Dim& dim = (*input.shape)[i];
      const std::int64_t size = given->tensor.shape()[i];
      if (dim.size >= 0 && dim.size != size) return false;
      dim = {.size = size, .symbol = ""};
    }
  }
  return true;
}

/// Adds the facts that the engine inferred when it loaded the model. False: a tensor has an unknown
/// size, or values that later code may need, so the model must run. A run holds all tensors at
/// once, which takes most of the time to the first step of a large network.
bool add_inferred(const infer::Model& loaded, Facts& out) {
  const bool complete =
      std::all_of(loaded.outputs().begin(), loaded.outputs().end(), [](const tensor::Spec& one) {
        // The engine shows an unknown rank as 0.
        return (one.dtype == tensor::DType::kFp32 || one.dtype == tensor::DType::kFp64) &&
               !one.shape.empty() &&
               std::all_of(one.shape.begin(), one.shape.end(),
                           [](std::int64_t size) { return size >= 0; });
      });
  if (!complete) return false;
  for (const tensor::Spec& one : loaded.outputs()) out[one.name] = {one.dtype, one.shape, {}};
  return true;
}

Result<Facts> run(infer::Engine& engine, const onnx::Model& model,
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
  const bool fits = fix_sizes(all.graph, batch);
  const std::string bytes = onnx::serialize(all);
  // Without optimization the engine keeps every node, so each tensor exists.
  TRY(const auto loaded,
      engine.load({.memory_arena = false, .options = {{"optimization", "none"}}, .model = bytes}));
  if (fits && add_inferred(*loaded, out)) return out;
  TRY(const auto outputs, loaded->run(batch, {}));
  for (const tensor::Named& output : outputs) out[output.name] = fact_of(output.tensor);
  return out;
}

/// Tensors that are equal for all batches of this size, such as arithmetic on shapes.
std::set<std::string> fixed_tensors(const onnx::Graph& graph) {
  std::set<std::string> out;
  for (const onnx::Tensor& tensor : graph.initializers)
    if (const auto dtype = onnx::dtype_of(tensor.data_type);  // training changes weights
        dtype == tensor::DType::kInt64 || dtype == tensor::DType::kInt32 ||
        dtype == tensor::DType::kBool)
      out.insert(tensor.name);
  for (const onnx::Node& node : graph.nodes) {
    const bool fixed = !node.inputs.empty() &&
                       std::all_of(node.inputs.begin(), node.inputs.end(), [&](const auto& input) {
                         return input.empty() || out.contains(input);
                       });
    const bool random = node.op_type.starts_with("Random") || node.op_type == "Bernoulli";
    if (node.domain.empty() && !random &&
        (fixed || node.op_type == "Shape" || node.op_type == "Size"))
      out.insert(node.outputs.begin(), node.outputs.end());
  }
  return out;
}

/// Puts the branch in the place of the node; false if names of the branch exist outside.
Result<bool> take_branch(onnx::Graph& graph, std::size_t at, const std::string& name) {
  onnx::Node node = graph.nodes[at];
  const onnx::Attribute* attribute = node.find(name);
  if (attribute == nullptr) return false;
  TRY(onnx::Graph branch, onnx::parse_graph(*attribute));
  std::set<std::string> known;
  for (const onnx::ValueInfo& input : graph.inputs) known.insert(input.name);
  for (const onnx::Tensor& tensor : graph.initializers) known.insert(tensor.name);
  for (const onnx::Node& one : graph.nodes) known.insert(one.outputs.begin(), one.outputs.end());
  known.erase("");
  bool fits = branch.inputs.empty() && branch.outputs.size() == node.outputs.size();
  for (const onnx::Tensor& tensor : branch.initializers)
    fits = fits && known.insert(tensor.name).second;
  for (const onnx::Node& one : branch.nodes)
    for (const std::string& output : one.outputs)
      fits = fits && (output.empty() || known.insert(output).second);
  if (!fits) return false;
  for (std::size_t i = 0; i < node.outputs.size(); ++i)
    branch.nodes.push_back(
        {.op_type = "Identity", .inputs = {branch.outputs[i].name}, .outputs = {node.outputs[i]}});
  const auto place = graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(at));
  graph.nodes.insert(place, branch.nodes.begin(), branch.nodes.end());
  graph.initializers.insert(graph.initializers.end(), branch.initializers.begin(),
                            branch.initializers.end());
  return true;
}

/// Whether a node was replaced. Branches may have such nodes again.
Result<bool> take_branches(onnx::Model& model, const Facts& facts) {
  const std::set<std::string> fixed = fixed_tensors(model.graph);
  bool changed = false;
  for (std::size_t at = model.graph.nodes.size(); at-- > 0;) {
    const onnx::Node& node = model.graph.nodes[at];
    if (node.op_type != "If" || !node.domain.empty() || !fixed.contains(node.input(0))) continue;
    const auto fact = facts.find(node.input(0));
    if (fact == facts.end() || !fact->second.integers || fact->second.integers->empty()) continue;
    TRY(const bool taken,
        take_branch(model.graph, at,
                    fact->second.integers->front() != 0 ? "then_branch" : "else_branch"));
    changed = changed || taken;
  }
  return changed;
}

}  // namespace

Result<Facts> trace(infer::Engine& engine, onnx::Model& model,
                    std::span<const tensor::Named> batch) {
  TRY(Facts facts, run(engine, model, batch));
  for (;;) {
    TRY(const bool changed, take_branches(model, facts));
    if (!changed) return facts;
    TRY_VOID(onnx::upgrade(model));  // Constant nodes of the branches
    TRY(facts, run(engine, model, batch));
  }
}

}  // namespace varda::train
