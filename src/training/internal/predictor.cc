#include "training/internal/predictor.h"

#include <algorithm>
#include <vector>

#include "onnx/model.h"
#include "training/internal/batches.h"
#include "training/internal/text.h"

namespace varda::training {
namespace {

namespace predictor {

train::Activation activation_of(const onnx::Graph& graph, std::string tensor) {
  // Nodes that keep the values may follow the activation.
  for (std::size_t steps = 0; steps < graph.nodes.size(); ++steps) {
    const auto node = std::ranges::find_if(graph.nodes, [&](const onnx::Node& one) {
      return std::ranges::find(one.outputs, tensor) != one.outputs.end();
    });
    if (node == graph.nodes.end() || !node->domain.empty()) break;
    if (node->op_type == "Softmax" || node->op_type == "Sigmoid")
      return train::Activation::kProbabilities;
    if (node->op_type == "LogSoftmax") return train::Activation::kLogProbabilities;
    if (node->op_type != "Identity" && node->op_type != "Reshape" && node->op_type != "Flatten" &&
        node->op_type != "Squeeze")
      break;
    tensor = node->input(0);
  }
  return train::Activation::kScores;
}

}  // namespace predictor

}  // namespace

Result<Predictor> Predictor::open(infer::Engine& engine, const std::string& file,
                                  unsigned threads) {
  TRY(const onnx::Model model, onnx::parse(file));
  Predictor out;
  TRY(out.model_, engine.load({.intra_op_threads = threads, .model = file}));
  const auto& inputs = out.model_->inputs();
  const auto& outputs = out.model_->outputs();
  if (inputs.size() != 1 || outputs.empty())
    return Error(Code::kUnsupported, "a model with one input and an output is needed");
  if (outputs[0].dtype != tensor::DType::kFp32)
    return Error(Code::kUnsupported, "output \"" + outputs[0].name + "\" is not FP32");
  out.input_ = inputs[0].name;
  out.output_ = outputs[0].name;
  if (!inputs[0].shape.empty() && inputs[0].shape[0] > 0) out.batch_ = inputs[0].shape[0];
  out.activation_ = predictor::activation_of(model.graph, out.output_);
  return out;
}

Result<tensor::Tensor> Predictor::run(const tensor::Tensor& input) {
  const tensor::Shape& shape = input.shape();
  if (shape.empty() || shape[0] < 1) return invalid("a batch without samples");
  const std::int64_t rows = shape[0];
  const std::int64_t step = batch_ > 0 ? batch_ : rows;
  const std::size_t row_bytes = input.bytes().size() / static_cast<std::size_t>(rows);
  std::vector<float> values;
  for (std::int64_t at = 0; at < rows; at += step) {
    const std::int64_t count = std::min(step, rows - at);
    tensor::Tensor piece = input;
    if (count != rows) {
      tensor::Shape part = shape;
      part[0] = count;
      TRY(piece,
          tensor::Tensor::copy(input.dtype(), part,
                               input.bytes().subspan(static_cast<std::size_t>(at) * row_bytes,
                                                     static_cast<std::size_t>(count) * row_bytes)));
    }
    TRY(piece, filled(piece, step));
    const std::vector<tensor::Named> inputs{{input_, std::move(piece)}};
    TRY(const auto outputs, model_->run(inputs, std::vector<std::string>{output_}));
    const auto all = outputs.at(0).tensor.values<float>();
    if (all.size() % static_cast<std::size_t>(step) != 0)
      return Error(Code::kUnsupported, "the output of the model has no row for each sample");
    values_ = all.size() / static_cast<std::size_t>(step);
    const auto used = all.first(values_ * static_cast<std::size_t>(count));
    values.insert(values.end(), used.begin(), used.end());
  }
  return tensor::Tensor::of<float>(tensor::DType::kFp32, {rows, static_cast<std::int64_t>(values_)},
                                   std::span(values));
}

}  // namespace varda::training
