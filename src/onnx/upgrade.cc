#include "onnx/upgrade.h"

#include <algorithm>
#include <set>
#include <span>

#include "onnx/names.h"

namespace varda::onnx {
namespace {

constexpr std::int64_t kIrVersion = 8;  // of opset 17

/// Changes of ONNX's operators from opset 11 to 17, as
/// github.com/onnx/onnx/blob/main/docs/Changelog.md lists them: axes and sizes became inputs, and
/// Softmax works on one axis.
class Upgrade {
 public:
  explicit Upgrade(Model& model) : model_(model), from_(model.opset()), names_(model.graph) {}

  Status run() {
    std::vector<Node> nodes;
    nodes.swap(model_.graph.nodes);
    for (Node& node : nodes) {
      if (!node.domain.empty()) {
        out_.push_back(std::move(node));
        continue;
      }
      if (from_ < 13 && std::any_of(node.attributes.begin(), node.attributes.end(), is_kept))
        return Error(Code::kUnsupported,
                     to_string(node) + " has a subgraph; export the model with opset 13 or newer");
      if (node.op_type == "Constant")
        TRY_VOID(constant(std::move(node)));
      else if (from_ < 13)
        old_node(std::move(node));
      else
        out_.push_back(std::move(node));
    }
    model_.graph.nodes = std::move(out_);
    if (from_ < kOpset) model_.opsets[""] = kOpset;
    model_.ir_version = std::max(model_.ir_version, kIrVersion);
    return {};
  }

 private:
  static bool is_kept(const Attribute& attribute) {
    return std::holds_alternative<Attribute::Kept>(attribute.value);
  }

  std::string ints(const std::string& hint, const std::vector<std::int64_t>& values,
                   tensor::Shape shape) {
    std::string name = names_.fresh(hint);
    const auto tensor = tensor::Tensor::of<std::int64_t>(tensor::DType::kInt64, std::move(shape),
                                                         std::span(values));
    model_.graph.initializers.push_back(Tensor::of(name, tensor.value()));
    return name;
  }

  Status constant(Node node) {
    const std::string& name = node.output(0);
    const auto add = [&](tensor::DType dtype, tensor::Shape shape, const auto& values) {
      const auto tensor =
          tensor::Tensor::copy(dtype, std::move(shape), std::as_bytes(std::span(values)));
      model_.graph.initializers.push_back(Tensor::of(name, tensor.value()));
    };
    const Attribute* value = node.attributes.size() == 1 ? &node.attributes.front() : nullptr;
    if (value == nullptr) {
      out_.push_back(std::move(node));
    } else if (const auto* tensor = std::get_if<Tensor>(&value->value)) {
      model_.graph.initializers.push_back(*tensor);
      model_.graph.initializers.back().name = name;
    } else if (const auto* real = std::get_if<float>(&value->value)) {
      add(tensor::DType::kFp32, {}, std::vector<float>{*real});
    } else if (const auto* integer = std::get_if<std::int64_t>(&value->value)) {
      add(tensor::DType::kInt64, {}, std::vector<std::int64_t>{*integer});
    } else if (const auto* reals = std::get_if<std::vector<float>>(&value->value)) {
      add(tensor::DType::kFp32, {static_cast<std::int64_t>(reals->size())}, *reals);
    } else if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&value->value)) {
      add(tensor::DType::kInt64, {static_cast<std::int64_t>(integers->size())}, *integers);
    } else {
      out_.push_back(std::move(node));
    }
    return {};
  }

  void old_node(Node node) {
    const std::string& op = node.op_type;
    if (op == "Softmax" || op == "LogSoftmax" || op == "Hardmax") return softmax(std::move(node));
    if (op == "Squeeze" || op == "Unsqueeze" || op == "ReduceSum") to_input(node, "axes");
    if (op == "Split") to_input(node, "split");
    if (op == "Dropout" && node.find("ratio") != nullptr) {
      const float ratio = node.real("ratio", 0.5f);
      std::string name = names_.fresh(node.output(0) + "/ratio");
      const auto tensor = tensor::Tensor::of<float>(tensor::DType::kFp32, {}, {{ratio}});
      model_.graph.initializers.push_back(Tensor::of(name, tensor.value()));
      node.inputs.resize(1);
      node.inputs.push_back(std::move(name));
      node.remove("ratio");
    }
    out_.push_back(std::move(node));
  }

  void to_input(Node& node, const std::string& attribute) {
    if (node.find(attribute) == nullptr) return;
    const auto values = node.integers(attribute);
    node.inputs.resize(1);
    node.inputs.push_back(
        ints(node.output(0) + "/" + attribute, values, {static_cast<std::int64_t>(values.size())}));
    node.remove(attribute);
  }

  // Until opset 12 the operator works on the tensor as a matrix: the axes before `axis` are rows.
  void softmax(Node node) {
    const std::int64_t axis = node.integer("axis", 1);
    node.remove("axis");
    node.attributes.push_back({"axis", std::int64_t{-1}});
    if (axis == -1) return out_.push_back(std::move(node));
    const std::string x = node.input(0), y = node.output(0);
    const std::string matrix = names_.fresh(y + "/matrix"), rows = names_.fresh(y + "/rows"),
                      shape = names_.fresh(y + "/shape");
    out_.push_back(
        {.op_type = "Flatten", .inputs = {x}, .outputs = {matrix}, .attributes = {{"axis", axis}}});
    node.inputs = {matrix};
    node.outputs = {rows};
    out_.push_back(std::move(node));
    out_.push_back({.op_type = "Shape", .inputs = {x}, .outputs = {shape}});
    out_.push_back({.op_type = "Reshape", .inputs = {rows, shape}, .outputs = {y}});
  }

  Model& model_;
  const std::int64_t from_;
  Names names_;
  std::vector<Node> out_;
};

}  // namespace

Status upgrade(Model& model) {
  if (model.opset() < kOpsetMin)
    return Error(Code::kUnsupported, "the model has opset " + std::to_string(model.opset()) +
                                         "; export it with opset " + std::to_string(kOpsetMin) +
                                         " or newer");
  return Upgrade(model).run();
}

}  // namespace varda::onnx
