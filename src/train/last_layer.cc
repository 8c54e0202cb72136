#include "train/last_layer.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "onnx/names.h"
#include "onnx/weights.h"
#include "train/head.h"

namespace varda::train {
namespace {

namespace last_layer {

using onnx::Node;

constexpr std::string_view kAfterLayer[] = {"Softmax", "LogSoftmax", "Sigmoid", "Identity",
                                            "Dropout"};

bool is_op(const Node& node, std::string_view op) {
  return node.domain.empty() && node.op_type == op;
}

const Node* producer(const onnx::Graph& graph, const std::string& tensor) {
  for (const Node& node : graph.nodes)
    if (std::ranges::find(node.outputs, tensor) != node.outputs.end()) return &node;
  return nullptr;
}

const onnx::Tensor* constant(const onnx::Graph& graph, const std::string& name) {
  if (const onnx::Tensor* found = graph.initializer(name)) return found;
  const Node* node = producer(graph, name);
  if (node == nullptr || !is_op(*node, "Constant")) return nullptr;
  const onnx::Attribute* value = node->find("value");
  return value == nullptr ? nullptr : std::get_if<onnx::Tensor>(&value->value);
}

Error other(const Node& node) {
  return Error(Code::kUnsupported,
               onnx::to_string(node) +
                   " is before the output; a streaming last layer needs Gemm with a bias, or "
                   "MatMul with Add");
}

}  // namespace last_layer

}  // namespace

Result<LastLayer> find_last_layer(const onnx::Model& model) {
  using namespace last_layer;
  const onnx::Graph& graph = model.graph;
  if (graph.outputs.empty()) return Error(Code::kInvalid, "the model has no output");
  const Node* node = producer(graph, graph.outputs.front().name);
  while (node != nullptr && node->domain.empty() &&
         std::ranges::find(kAfterLayer, node->op_type) != std::end(kAfterLayer))
    node = producer(graph, node->input(0));
  if (node == nullptr) return Error(Code::kUnsupported, "no layer computes the output");
  LastLayer out;
  if (is_op(*node, "Add")) {
    const std::size_t bias = constant(graph, node->input(1)) != nullptr ? 1 : 0;
    if (constant(graph, node->input(bias)) == nullptr) return other(*node);
    out.bias = node->input(bias);
    const Node* product = producer(graph, node->input(1 - bias));
    if (product == nullptr || !is_op(*product, "MatMul")) return other(*node);
    node = product;
  } else if (is_op(*node, "Gemm")) {
    out.transposed = node->integer("transB", 0) != 0;
    out.bias = node->input(2);
    if (out.bias.empty() || node->integer("transA", 0) != 0 || node->real("alpha", 1) != 1.0f ||
        node->real("beta", 1) != 1.0f)
      return other(*node);
  } else {
    return other(*node);
  }
  out.features = node->input(0);
  out.weights = node->input(1);
  const onnx::Tensor* const weights = constant(graph, out.weights);
  const onnx::Tensor* const bias = constant(graph, out.bias);
  if (weights == nullptr || bias == nullptr || weights->dims.size() != 2) return other(*node);
  out.inputs = weights->dims[out.transposed ? 1 : 0];
  out.classes = weights->dims[out.transposed ? 0 : 1];
  std::int64_t values = 1;
  for (const std::int64_t size : bias->dims) values *= size;
  if (values != out.classes || out.inputs < 1 ||
      out.inputs > static_cast<std::int64_t>(StreamingLda::kFeaturesMax))
    return other(*node);
  return out;
}

std::string features_model(onnx::Model model, const LastLayer& layer) {
  const std::int64_t type = model.graph.outputs.front().data_type;
  // The features of a linear model are its input, and an input is no output.
  onnx::Names names(model.graph);
  const std::string output = names.fresh("varda.features");
  model.graph.nodes.push_back(
      {.op_type = "Identity", .inputs = {layer.features}, .outputs = {output}});
  // Nodes behind the features have no reader, and the engine removes them.
  model.graph.outputs = {onnx::ValueInfo{.name = output, .data_type = type}};
  return onnx::serialize(model);
}

Result<std::string> replace_last_layer(std::string file, const LinearLayer& layer) {
  TRY(const onnx::Model before, onnx::parse(file));
  TRY(LastLayer place, find_last_layer(before));
  const auto classes = static_cast<std::int64_t>(layer.classes);
  if (place.inputs != static_cast<std::int64_t>(layer.inputs))
    return Error(Code::kInvalid, "the last layer reads " + std::to_string(place.inputs) +
                                     " values, not " + std::to_string(layer.inputs));
  if (place.classes != classes) {
    TRY(file, replace_head(std::move(file), classes, 1));
    place.classes = classes;
  }
  TRY(const onnx::Model model, onnx::parse(file));
  std::vector<float> weights(layer.weights.size());
  for (std::size_t i = 0; i < layer.inputs; ++i)
    for (std::size_t k = 0; k < layer.classes; ++k)
      weights[place.transposed ? k * layer.inputs + i : i * layer.classes + k] =
          layer.weights[i * layer.classes + k];
  const tensor::Shape shape = place.transposed ? tensor::Shape{classes, place.inputs}
                                               : tensor::Shape{place.inputs, classes};
  const onnx::Tensor* const bias = last_layer::constant(model.graph, place.bias);
  if (bias == nullptr) return Error(Code::kInternal, "the bias of the last layer is gone");
  std::map<std::string, tensor::Tensor> values;
  TRY(values[place.weights],
      tensor::Tensor::of<float>(tensor::DType::kFp32, shape, std::span(std::as_const(weights))));
  TRY(values[place.bias],
      tensor::Tensor::of<float>(tensor::DType::kFp32, bias->dims, std::span(layer.bias)));
  return onnx::replace_weights(file, values);
}

}  // namespace varda::train
