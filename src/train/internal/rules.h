// The gradient of each operator.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "onnx/model.h"
#include "train/internal/backward.h"

namespace varda::train {

/// Gives gradients to the inputs of a node that need one. The first output has a gradient, except
/// for nodes with several outputs, where any has one. A rule may add outputs to the node. All
/// tensors of the node have facts. kUnsupported: the operator has no gradient in this form.
using Rule = Status (*)(Backward& b, onnx::Node& node);
struct RuleEntry {
  std::string_view op;
  Rule rule;
};

std::span<const RuleEntry> arithmetic_rules();
std::span<const RuleEntry> matrix_rules();
std::span<const RuleEntry> shape_rules();
std::span<const RuleEntry> convolution_rules();
std::span<const RuleEntry> normalization_rules();

/// Null for an operator without a rule.
Rule find_rule(const onnx::Node& node);

/// Axes of a reduction, counted from 0: the attribute or the input `axes`; all if both are absent.
Result<Backward::Integers> reduced_axes(const Backward& b, const onnx::Node& node);
/// `axis` of a tensor of this rank, counted from 0. kInvalid: beyond the rank.
Result<std::int64_t> axis_of(std::int64_t axis, std::size_t rank);

}  // namespace varda::train
