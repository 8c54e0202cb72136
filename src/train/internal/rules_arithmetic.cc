// Gradients of element-wise operators, with broadcasting.
#include <cmath>
#include <numbers>

#include "train/internal/rules.h"

namespace varda::train {
namespace {

using onnx::Node;

/// `dy * factor`, the usual end of a rule.
std::string times(Backward& b, const std::string& x, const std::string& y) {
  return b.emit("Mul", {x, y});
}

/// A rule for one input: `f(x, y, dy)` names the gradient of x.
template <typename F>
Status unary(Backward& b, Node& node, F f) {
  const std::string x = node.input(0), y = node.output(0);
  if (b.needs(x)) b.give(x, f(x, y, b.gradient(y)));
  return {};
}

/// Gives a gradient of the output's shape to a broadcast operand.
void give_operand(Backward& b, const Node& node, std::size_t index, const std::string& gradient) {
  const std::string& operand = node.input(index);
  b.give(operand, b.sum_to(gradient, b.shape(node.output(0)), b.shape(operand)));
}

Status pass(Backward& b, Node& node) {
  return unary(b, node, [](const auto&, const auto&, const std::string& dy) { return dy; });
}

Status nothing(Backward&, Node&) { return {}; }

// The output decides, so that the engine may still fuse the activation into the node before it.
Status relu(Backward& b, Node& node) {
  return unary(b, node, [&](const auto&, const std::string& y, const std::string& dy) {
    return b.emit("Where", {b.emit("Greater", {y, b.number(0)}), dy, b.number(0)});
  });
}

Status leaky_relu(Backward& b, Node& node) {
  const double alpha = node.real("alpha", 0.01f);
  return unary(b, node, [&](const std::string& x, const std::string& y, const std::string& dy) {
    const std::string sign = b.emit("Greater", {alpha > 0 ? y : x, b.number(0)});
    return b.emit("Where", {sign, dy, times(b, dy, b.number(alpha))});
  });
}

Status elu(Backward& b, Node& node) {
  const bool selu = node.op_type == "Selu";
  const double alpha = node.real("alpha", selu ? 1.67326319217681884765625f : 1.0f);
  const double gamma = selu ? node.real("gamma", 1.05070102214813232421875f) : 1.0;
  return unary(b, node, [&](const std::string& x, const std::string& y, const std::string& dy) {
    return times(b, dy,
                 b.emit("Where", {b.emit("Greater", {x, b.number(0)}), b.number(gamma),
                                  b.emit("Add", {y, b.number(alpha * gamma)})}));
  });
}

// alpha * (exp(x / alpha) - 1) below zero
Status celu(Backward& b, Node& node) {
  const double alpha = node.real("alpha", 1.0f);
  return unary(b, node, [&](const std::string& x, const std::string& y, const std::string& dy) {
    const std::string below =
        times(b, dy, b.emit("Add", {times(b, y, b.number(1 / alpha)), b.number(1)}));
    return b.emit("Where", {b.emit("Greater", {x, b.number(0)}), dy, below});
  });
}

Status thresholded_relu(Backward& b, Node& node) {
  const double alpha = node.real("alpha", 1.0f);
  return unary(b, node, [&](const std::string& x, const auto&, const std::string& dy) {
    return b.emit("Where", {b.emit("Greater", {x, b.number(alpha)}), dy, b.number(0)});
  });
}

Status prelu(Backward& b, Node& node) {
  const std::string &x = node.input(0), &slope = node.input(1), dy = b.gradient(node.output(0));
  const std::string positive = b.emit("Greater", {x, b.number(0)});
  if (b.needs(x)) b.give(x, b.emit("Where", {positive, dy, times(b, dy, slope)}));
  if (b.needs(slope))
    give_operand(b, node, 1, b.emit("Where", {positive, b.number(0), times(b, dy, x)}));
  return {};
}

Status sigmoid(Backward& b, Node& node) {
  return unary(b, node, [&](const auto&, const std::string& y, const std::string& dy) {
    return times(b, times(b, dy, y), b.emit("Sub", {b.number(1), y}));
  });
}

Status tanh(Backward& b, Node& node) {
  return unary(b, node, [&](const auto&, const std::string& y, const std::string& dy) {
    return times(b, dy, b.emit("Sub", {b.number(1), times(b, y, y)}));
  });
}

Status hard_sigmoid(Backward& b, Node& node) {
  const double alpha = node.real("alpha", 0.2f);
  return unary(b, node, [&](const auto&, const std::string& y, const std::string& dy) {
    const std::string inside =
        b.emit("And", {b.emit("Greater", {y, b.number(0)}), b.emit("Less", {y, b.number(1)})});
    return b.emit("Where", {inside, times(b, dy, b.number(alpha)), b.number(0)});
  });
}

// x * clip(x / 6 + 1 / 2, 0, 1)
Status hard_swish(Backward& b, Node& node) {
  return unary(b, node, [&](const std::string& x, const auto&, const std::string& dy) {
    const std::string middle = b.emit("Add", {times(b, x, b.number(1.0 / 3)), b.number(0.5)});
    const std::string right =
        b.emit("Where", {b.emit("Less", {x, b.number(3)}), middle, b.number(1)});
    return times(b, dy,
                 b.emit("Where", {b.emit("Greater", {x, b.number(-3)}), right, b.number(0)}));
  });
}

// The output decides as for Relu; so the input need not stay in memory until the way back.
Status clip(Backward& b, Node& node) {
  return unary(b, node, [&](const auto&, const std::string& y, const std::string& dy) {
    std::string out = dy;
    if (!node.input(1).empty())
      out = b.emit("Where", {b.emit("Greater", {y, node.input(1)}), out, b.number(0)});
    if (!node.input(2).empty())
      out = b.emit("Where", {b.emit("Less", {y, node.input(2)}), out, b.number(0)});
    return out;
  });
}

Status exponential(Backward& b, Node& node) {
  return unary(b, node, [&](const auto&, const std::string& y, const std::string& dy) {
    return times(b, dy, y);
  });
}

Status logarithm(Backward& b, Node& node) {
  return unary(b, node, [&](const std::string& x, const auto&, const std::string& dy) {
    return b.emit("Div", {dy, x});
  });
}

Status square_root(Backward& b, Node& node) {
  return unary(b, node, [&](const auto&, const std::string& y, const std::string& dy) {
    return b.emit("Div", {times(b, dy, b.number(0.5)), y});
  });
}

Status reciprocal(Backward& b, Node& node) {
  return unary(b, node, [&](const auto&, const std::string& y, const std::string& dy) {
    return b.emit("Neg", {times(b, dy, times(b, y, y))});
  });
}

Status negative(Backward& b, Node& node) {
  return unary(b, node, [&](const auto&, const auto&, const std::string& dy) {
    return b.emit("Neg", {dy});
  });
}

Status absolute(Backward& b, Node& node) {
  return unary(b, node, [&](const std::string& x, const auto&, const std::string& dy) {
    return times(b, dy, b.emit("Sign", {x}));
  });
}

Status sine(Backward& b, Node& node) {
  return unary(b, node, [&](const std::string& x, const auto&, const std::string& dy) {
    return times(b, dy, b.emit("Cos", {x}));
  });
}

Status cosine(Backward& b, Node& node) {
  return unary(b, node, [&](const std::string& x, const auto&, const std::string& dy) {
    return b.emit("Neg", {times(b, dy, b.emit("Sin", {x}))});
  });
}

// d erf(x) / dx = 2 / sqrt(pi) * exp(-x^2)
Status erf(Backward& b, Node& node) {
  return unary(b, node, [&](const std::string& x, const auto&, const std::string& dy) {
    const std::string bell = b.emit("Exp", {b.emit("Neg", {times(b, x, x)})});
    return times(b, dy, times(b, bell, b.number(2 * std::numbers::inv_sqrtpi)));
  });
}

// Phi(x) + x * phi(x), or the derivative of the approximation by tanh.
Status gelu(Backward& b, Node& node) {
  const bool approximate = node.text("approximate", "none") == "tanh";
  return unary(b, node, [&](const std::string& x, const auto&, const std::string& dy) {
    const std::string squared = times(b, x, x);
    if (!approximate) {
      const std::string erf = b.emit("Erf", {times(b, x, b.number(1 / std::numbers::sqrt2))});
      const std::string below = times(b, b.emit("Add", {erf, b.number(1)}), b.number(0.5));
      const std::string bell = b.emit("Exp", {times(b, squared, b.number(-0.5))});
      const std::string density =
          times(b, bell, b.number(std::numbers::inv_sqrtpi / std::numbers::sqrt2));
      return times(b, dy, b.emit("Add", {below, times(b, x, density)}));
    }
    // y = x / 2 * (1 + t), t = tanh(s * (x + c * x^3))
    const double s = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, c = 0.044715;
    const std::string inner =
        times(b, x, b.emit("Add", {times(b, squared, b.number(s * c)), b.number(s)}));
    const std::string t = b.emit("Tanh", {inner});
    const std::string slope = b.emit("Add", {times(b, squared, b.number(3 * s * c)), b.number(s)});
    const std::string inside = b.emit("Sub", {b.number(1), times(b, t, t)});
    const std::string first = times(b, b.emit("Add", {t, b.number(1)}), b.number(0.5));
    const std::string second = times(b, times(b, x, b.number(0.5)), times(b, inside, slope));
    return times(b, dy, b.emit("Add", {first, second}));
  });
}

Status softplus(Backward& b, Node& node) {
  return unary(b, node, [&](const std::string& x, const auto&, const std::string& dy) {
    return times(b, dy, b.emit("Sigmoid", {x}));
  });
}

// y = x * tanh(softplus(x))
Status mish(Backward& b, Node& node) {
  return unary(b, node, [&](const std::string& x, const auto&, const std::string& dy) {
    const std::string t = b.emit("Tanh", {b.emit("Softplus", {x})});
    const std::string inside = b.emit("Sub", {b.number(1), times(b, t, t)});
    const std::string slope = times(b, times(b, x, b.emit("Sigmoid", {x})), inside);
    return times(b, dy, b.emit("Add", {t, slope}));
  });
}

Status softsign(Backward& b, Node& node) {
  return unary(b, node, [&](const std::string& x, const auto&, const std::string& dy) {
    const std::string size = b.emit("Add", {b.emit("Abs", {x}), b.number(1)});
    return b.emit("Div", {dy, times(b, size, size)});
  });
}

Status cast(Backward& b, Node& node) {
  const Fact* from = b.find(node.input(0));
  return unary(b, node, [&](const auto&, const auto&, const std::string& dy) {
    return b.emit("Cast", {dy}, {{"to", onnx::data_type_of(from->dtype)}});
  });
}

Status add(Backward& b, Node& node) {
  const std::string dy = b.gradient(node.output(0));
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    if (b.needs(node.input(i))) give_operand(b, node, i, dy);
  return {};
}

Status mean(Backward& b, Node& node) {
  const auto share = 1.0 / static_cast<double>(node.inputs.size());
  const std::string dy = times(b, b.gradient(node.output(0)), b.number(share));
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    if (b.needs(node.input(i))) give_operand(b, node, i, dy);
  return {};
}

Status subtract(Backward& b, Node& node) {
  const std::string dy = b.gradient(node.output(0));
  if (b.needs(node.input(0))) give_operand(b, node, 0, dy);
  if (b.needs(node.input(1))) give_operand(b, node, 1, b.emit("Neg", {dy}));
  return {};
}

Status multiply(Backward& b, Node& node) {
  const std::string dy = b.gradient(node.output(0));
  for (const std::size_t i : {0, 1})
    if (b.needs(node.input(i))) give_operand(b, node, i, times(b, dy, node.input(1 - i)));
  return {};
}

Status divide(Backward& b, Node& node) {
  const std::string &x = node.input(0), &divisor = node.input(1), &y = node.output(0);
  const std::string share = b.emit("Div", {b.gradient(y), divisor});
  if (b.needs(x)) give_operand(b, node, 0, share);
  if (b.needs(divisor)) give_operand(b, node, 1, b.emit("Neg", {times(b, share, y)}));
  return {};
}

Status power(Backward& b, Node& node) {
  const std::string &x = node.input(0), &exponent = node.input(1), &y = node.output(0);
  const std::string dy = b.gradient(y);
  if (b.needs(x)) {
    const std::string real =
        b.find(exponent)->dtype == b.dtype()
            ? exponent
            : b.emit("Cast", {exponent}, {{"to", onnx::data_type_of(b.dtype())}});
    const std::string lower = b.emit("Pow", {x, b.emit("Sub", {real, b.number(1)})});
    give_operand(b, node, 0, times(b, times(b, dy, real), lower));
  }
  if (b.needs(exponent)) give_operand(b, node, 1, times(b, times(b, dy, y), b.emit("Log", {x})));
  return {};
}

// Min and Max: each operand that equals the output.
Status extreme(Backward& b, Node& node) {
  const std::string &y = node.output(0), dy = b.gradient(y);
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    if (b.needs(node.input(i)))
      give_operand(b, node, i,
                   b.emit("Where", {b.emit("Equal", {node.input(i), y}), dy, b.number(0)}));
  return {};
}

Status choose(Backward& b, Node& node) {
  const std::string &condition = node.input(0), dy = b.gradient(node.output(0));
  if (b.needs(node.input(1)))
    give_operand(b, node, 1, b.emit("Where", {condition, dy, b.number(0)}));
  if (b.needs(node.input(2)))
    give_operand(b, node, 2, b.emit("Where", {condition, b.number(0), dy}));
  return {};
}

Status dropout(Backward& b, Node& node) {
  if (!node.input(2).empty()) {
    TRY(const auto training, b.values(node.input(2)));
    if (training != Backward::Integers{0})
      return Error(Code::kUnsupported, "it drops values; export the model for inference");
  }
  return pass(b, node);
}

constexpr RuleEntry kRules[] = {
    {"Abs", absolute},
    {"Add", add},
    {"Cast", cast},
    {"Ceil", nothing},
    {"Celu", celu},
    {"Clip", clip},
    {"Cos", cosine},
    {"Div", divide},
    {"Dropout", dropout},
    {"Elu", elu},
    {"Erf", erf},
    {"Exp", exponential},
    {"Floor", nothing},
    {"Gelu", gelu},
    {"HardSigmoid", hard_sigmoid},
    {"HardSwish", hard_swish},
    {"Identity", pass},
    {"LeakyRelu", leaky_relu},
    {"Log", logarithm},
    {"Max", extreme},
    {"Mean", mean},
    {"Min", extreme},
    {"Mish", mish},
    {"Mul", multiply},
    {"Neg", negative},
    {"PRelu", prelu},
    {"Pow", power},
    {"Reciprocal", reciprocal},
    {"Relu", relu},
    {"Round", nothing},
    {"Selu", elu},
    {"Sigmoid", sigmoid},
    {"Sign", nothing},
    {"Sin", sine},
    {"Softplus", softplus},
    {"Softsign", softsign},
    {"Sqrt", square_root},
    {"Sub", subtract},
    {"Sum", add},
    {"Tanh", tanh},
    {"ThresholdedRelu", thresholded_relu},
    {"Where", choose},
};

}  // namespace

std::span<const RuleEntry> arithmetic_rules() { return kRules; }

}  // namespace varda::train
