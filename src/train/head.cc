#include "train/head.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "base/rng.h"
#include "codec/protobuf.h"
#include "onnx/model.h"
#include "tensor/tensor.h"

namespace varda::train {
namespace {

using onnx::Node;
using tensor::DType;
using tensor::Tensor;

constexpr std::string_view kPassing[] = {"Softmax", "LogSoftmax", "Sigmoid", "Identity", "Dropout"};

/// Replaces the weights between the output and the features.
class Replacement {
 public:
  Replacement(onnx::Model model, std::int64_t classes, std::uint64_t seed)
      : model_(std::move(model)), classes_(classes), rng_(seeded_rng(seed)) {}

  Result<std::string> run() {
    if (graph().outputs.empty()) return Error(Code::kInvalid, "the model has no output");
    const std::string& output = graph().outputs.front().name;
    const Node* node = producer(output);
    while (node != nullptr && node->domain.empty() &&
           std::ranges::find(kPassing, node->op_type) != std::end(kPassing)) {
      changed_.insert(node->output(0));
      node = producer(node->input(0));
    }
    if (node == nullptr)
      return Error(Code::kUnsupported, "no layer computes output \"" + output + "\"");
    const Node* last = node;
    changed_.insert(last->output(0));
    if (is(*last, "Add")) {
      // The operand that is no constant comes from the MatMul.
      const int bias = constant(last->input(1)) != nullptr ? 1 : 0;
      if (constant(last->input(bias)) == nullptr) return other(*last);
      node = producer(last->input(1 - bias));
      if (node == nullptr || !is(*node, "MatMul")) return other(*last);
      changed_.insert(node->output(0));
      TRY_VOID(zero_bias(*last, last->input(bias)));
    }
    if (is(*node, "Gemm")) {
      const bool transposed = node->integer("transB", 0) != 0;
      TRY_VOID(new_weights(*node, transposed ? 1 : 0));
      if (!node->input(2).empty()) TRY_VOID(zero_bias(*node, node->input(2)));
    } else if (is(*node, "MatMul")) {
      TRY_VOID(new_weights(*node, 0));
    } else {
      return other(*node);
    }
    TRY_VOID(declare_shapes());
    return onnx::serialize(model_);
  }

 private:
  onnx::Graph& graph() { return model_.graph; }
  static bool is(const Node& node, std::string_view op) {
    return node.domain.empty() && node.op_type == op;
  }
  Error other(const Node& node) const {
    return Error(Code::kUnsupported,
                 onnx::to_string(node) +
                     " is before the output; only Gemm, and MatMul with or without Add, can be "
                     "replaced by a layer for another number of classes");
  }
  const Node* producer(const std::string& tensor) {
    for (const Node& node : graph().nodes)
      if (std::ranges::find(node.outputs, tensor) != node.outputs.end()) return &node;
    return nullptr;
  }

  /// The initializer or the value of the Constant node with this name, or null.
  onnx::Tensor* constant(const std::string& name) {
    for (onnx::Tensor& tensor : graph().initializers)
      if (tensor.name == name) return &tensor;
    for (Node& node : graph().nodes)
      if (is(node, "Constant") && node.output(0) == name)
        for (onnx::Attribute& attribute : node.attributes)
          if (attribute.name == "value") return std::get_if<onnx::Tensor>(&attribute.value);
    return nullptr;
  }

  /// The constant, if this node alone reads it.
  Result<onnx::Tensor*> own_constant(const Node& node, const std::string& name) {
    onnx::Tensor* out = constant(name);
    if (out == nullptr)
      return Error(Code::kUnsupported, onnx::to_string(node) + ": the weights \"" + name +
                                           "\" are computed, not stored in the file");
    if (onnx::dtype_of(out->data_type) != DType::kFp32)
      return Error(Code::kUnsupported,
                   onnx::to_string(node) + ": the weights \"" + name + "\" are not FP32");
    std::size_t readers = 0;
    for (const Node& reader : graph().nodes)
      readers += static_cast<std::size_t>(std::ranges::count(reader.inputs, name));
    if (readers != 1)
      return Error(Code::kUnsupported,
                   onnx::to_string(node) + ": other nodes also read \"" + name + "\"");
    return out;
  }

  Status new_weights(const Node& node, std::size_t input_axis) {
    TRY(onnx::Tensor* const weights, own_constant(node, node.input(1)));
    tensor::Shape shape = weights->dims;
    if (shape.size() != 2 || shape[input_axis] < 1)
      return Error(Code::kUnsupported, onnx::to_string(node) + ": the weights \"" + weights->name +
                                           "\" have the shape " + tensor::to_string(shape) +
                                           ", not two axes");
    const double range = std::sqrt(6.0 / static_cast<double>(shape[input_axis]));
    shape[1 - input_axis] = classes_;
    TRY(Tensor value, Tensor::allocate(DType::kFp32, shape));
    for (float& one : value.mutable_values<float>())
      one = static_cast<float>(range * (2 * rng_->unit() - 1));
    *weights = onnx::Tensor::of(weights->name, value);
    return {};
  }

  Status zero_bias(const Node& node, const std::string& name) {
    TRY(onnx::Tensor* const bias, own_constant(node, name));
    tensor::Shape shape = bias->dims;
    if (shape.empty() ||
        std::any_of(shape.begin(), shape.end() - 1, [](std::int64_t size) { return size != 1; }))
      return Error(Code::kUnsupported, onnx::to_string(node) + ": the bias \"" + name +
                                           "\" has the shape " + tensor::to_string(shape) +
                                           ", not one value a class");
    shape.back() = classes_;
    TRY(const Tensor zeros, Tensor::allocate(DType::kFp32, shape));
    *bias = onnx::Tensor::of(bias->name, zeros);
    return {};
  }

  /// Corrects the shapes of outputs, and drops those of tensors inside the graph.
  Status declare_shapes() {
    for (onnx::ValueInfo& output : graph().outputs)
      if (changed_.contains(output.name) && output.shape && !output.shape->empty())
        output.shape->back() = {.size = classes_};
    std::string kept;
    codec::ProtoReader rest(graph().rest);
    while (rest.next()) {
      if (rest.field() == kValueInfo && changed_.contains(name_of(rest.bytes()))) continue;
      kept += rest.raw();
    }
    TRY_VOID(rest.status());
    graph().rest = std::move(kept);
    return {};
  }

  static constexpr std::uint32_t kValueInfo = 13;  // GraphProto.value_info
  static std::string name_of(std::string_view value_info) {
    std::string out;
    codec::ProtoReader in(value_info);
    while (in.next())
      if (in.field() == 1) out = in.text();
    return out;
  }

  onnx::Model model_;
  const std::int64_t classes_;
  const std::unique_ptr<Rng> rng_;
  std::set<std::string> changed_;  // tensors with one value a class
};

}  // namespace

Result<std::string> replace_head(std::string file, std::int64_t classes, std::uint64_t seed) {
  TRY(onnx::Model model, onnx::parse(std::move(file)));
  return Replacement(std::move(model), classes, seed).run();
}

}  // namespace varda::train
