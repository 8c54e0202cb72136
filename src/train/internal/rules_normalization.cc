// Gradients of normalizations and Softmax.
#include <numeric>

#include "train/internal/rules.h"

namespace varda::train {
namespace {

using onnx::Node;
using tensor::Shape;
using Integers = Backward::Integers;

std::string product(Backward& b, const std::string& x, const std::string& y) {
  return b.emit("Mul", {x, y});
}

std::string mean_over(Backward& b, const std::string& x, const Shape& shape, const Integers& axes) {
  double count = 1;
  for (const std::int64_t axis : axes)
    count *= static_cast<double>(shape[static_cast<std::size_t>(axis)]);
  return product(b, b.sum(x, axes), b.number(1 / count));
}

/// The gradient through y = (x - mean) * inverse, where mean and inverse deviation depend on x:
///
///   dx = inverse * (dy - mean(dy) - y * mean(dy * y))
std::string through_statistics(Backward& b, const std::string& dy, const std::string& normalized,
                               const std::string& inverse, const Shape& shape,
                               const Integers& axes) {
  const std::string centered = b.emit("Sub", {dy, mean_over(b, dy, shape, axes)});
  const std::string along =
      product(b, normalized, mean_over(b, product(b, dy, normalized), shape, axes));
  return product(b, inverse, b.emit("Sub", {centered, along}));
}

/// [C] as [1,C,1,...] for a tensor of this rank.
std::string per_channel(Backward& b, const std::string& x, std::int64_t channels,
                        std::size_t rank) {
  Shape shape(rank, 1);
  shape.at(1) = channels;
  return b.reshape(x, shape);
}

Integers all_but_channels(std::size_t rank) {
  Integers out;
  for (std::size_t i = 0; i < rank; ++i)
    if (i != 1) out.push_back(static_cast<std::int64_t>(i));
  return out;
}

// Inputs: X, scale, B, mean, variance. Statistics of the batch replaced the last two before, if the
// node is trained; then they depend on X.
Status batch_normalization(Backward& b, Node& node) {
  const std::string &x = node.input(0), &scale = node.input(1), &bias = node.input(2);
  const std::string &mean = node.input(3), &variance = node.input(4);
  if (node.integer("training_mode", 0) != 0)
    return Error(Code::kUnsupported, "it is in training mode; export the model for inference");
  const Shape& shape = b.shape(x);
  const std::size_t rank = shape.size();
  if (rank < 2) return Error(Code::kUnsupported, "its input has no axis of channels");
  const std::int64_t channels = shape[1];
  const Integers axes = all_but_channels(rank);
  const std::string dy = b.gradient(node.output(0));
  const std::string spread = b.emit("Add", {variance, b.number(node.real("epsilon", 1e-5f))});
  const std::string inverse =
      per_channel(b, b.emit("Reciprocal", {b.emit("Sqrt", {spread})}), channels, rank);
  const bool of_batch = b.needs(mean);
  std::string normalized;
  if (b.needs(scale) || (of_batch && b.needs(x)))
    normalized = product(b, b.emit("Sub", {x, per_channel(b, mean, channels, rank)}), inverse);
  if (b.needs(bias)) b.give(bias, b.reshape(b.sum(dy, axes), {channels}));
  if (b.needs(scale)) b.give(scale, b.reshape(b.sum(product(b, dy, normalized), axes), {channels}));
  if (!b.needs(x)) return {};
  const std::string scaled = product(b, dy, per_channel(b, scale, channels, rank));
  b.give(x, of_batch ? through_statistics(b, scaled, normalized, inverse, shape, axes)
                     : product(b, scaled, inverse));
  return {};
}

// Varda's own operator, with the statistics of the batch as further outputs.
Status own_batch_normalization(Backward& b, Node& node) {
  const std::string &x = node.input(0), &scale = node.input(1), &bias = node.input(2);
  const std::vector<std::string> gradients =
      b.emit_own("BatchNormalizationGradient",
                 {x, scale, node.output(1), node.output(2), b.gradient(node.output(0))},
                 {true, true, true}, {{"epsilon", node.real("epsilon", 1e-5f)}});
  b.give(x, gradients[0]);
  b.give(scale, gradients[1]);
  b.give(bias, gradients[2]);
  return {};
}

// The operator's further outputs are mean and inverse deviation.
Status layer_normalization(Backward& b, Node& node) {
  const std::string x = node.input(0), scale = node.input(1), bias = node.input(2);
  const std::string y = node.output(0);
  const Shape& shape = b.shape(x);
  TRY(const std::int64_t first, axis_of(node.integer("axis", -1), shape.size()));
  Integers axes;
  for (auto i = first; i < static_cast<std::int64_t>(shape.size()); ++i) axes.push_back(i);
  node.outputs.resize(3);
  if (node.outputs[1].empty()) node.outputs[1] = b.fresh(y + "/mean");
  if (node.outputs[2].empty()) node.outputs[2] = b.fresh(y + "/inverse");
  const std::string dy = b.gradient(y), inverse = node.output(2);
  const std::string normalized = product(b, b.emit("Sub", {x, node.output(1)}), inverse);
  if (!bias.empty() && b.needs(bias)) b.give(bias, b.sum_to(dy, shape, b.shape(bias)));
  if (b.needs(scale)) b.give(scale, b.sum_to(product(b, dy, normalized), shape, b.shape(scale)));
  if (b.needs(x))
    b.give(x, through_statistics(b, product(b, dy, scale), normalized, inverse, shape, axes));
  return {};
}

Status instance_normalization(Backward& b, Node& node) {
  const std::string &x = node.input(0), &scale = node.input(1), &bias = node.input(2);
  const Shape& shape = b.shape(x);
  const std::size_t rank = shape.size();
  if (rank < 2) return Error(Code::kUnsupported, "its input has no axis of channels");
  const std::int64_t channels = shape[1];
  Integers axes(rank - 2);
  std::iota(axes.begin(), axes.end(), 2);
  const std::string dy = b.gradient(node.output(0));
  const std::string centered = b.emit("Sub", {x, mean_over(b, x, shape, axes)});
  const std::string variance = mean_over(b, product(b, centered, centered), shape, axes);
  const std::string inverse =
      b.emit("Reciprocal",
             {b.emit("Sqrt", {b.emit("Add", {variance, b.number(node.real("epsilon", 1e-5f))})})});
  const std::string normalized = product(b, centered, inverse);
  const Integers outer = all_but_channels(rank);
  if (b.needs(bias)) b.give(bias, b.reshape(b.sum(dy, outer), {channels}));
  if (b.needs(scale))
    b.give(scale, b.reshape(b.sum(product(b, dy, normalized), outer), {channels}));
  if (b.needs(x))
    b.give(x, through_statistics(b, product(b, dy, per_channel(b, scale, channels, rank)),
                                 normalized, inverse, shape, axes));
  return {};
}

Status softmax(Backward& b, Node& node) {
  const std::string &x = node.input(0), &y = node.output(0);
  if (!b.needs(x)) return {};
  TRY(const std::int64_t axis, axis_of(node.integer("axis", -1), b.shape(x).size()));
  const std::string dy = b.gradient(y);
  if (node.op_type == "LogSoftmax") {
    const std::string part = product(b, b.emit("Exp", {y}), b.sum(dy, {axis}));
    b.give(x, b.emit("Sub", {dy, part}));
    return {};
  }
  const std::string common = b.sum(product(b, dy, y), {axis});
  b.give(x, product(b, y, b.emit("Sub", {dy, common})));
  return {};
}

constexpr RuleEntry kNormalizationRules[] = {
    {"BatchNormalization", batch_normalization},
    {"InstanceNormalization", instance_normalization},
    {"LayerNormalization", layer_normalization},
    {"LogSoftmax", softmax},
    {"Softmax", softmax},
};

}  // namespace

std::span<const RuleEntry> normalization_rules() { return kNormalizationRules; }

Rule find_rule(const Node& node) {
  if (node.domain == kOwnDomain && node.op_type == "BatchNormalization")
    return own_batch_normalization;
  if (!node.domain.empty()) return nullptr;
  for (const auto rules : {arithmetic_rules(), matrix_rules(), shape_rules(), convolution_rules(),
                           normalization_rules()})
    for (const RuleEntry& entry : rules)
      if (entry.op == node.op_type) return entry.rule;
  return nullptr;
}

}  // namespace varda::train
