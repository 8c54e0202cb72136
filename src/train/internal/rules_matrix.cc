// Gradients of matrix products.
#include <map>
#include <string>

#include "base/text.h"
#include "train/internal/rules.h"

namespace varda::train {
namespace {

using onnx::Node;
using tensor::Shape;

enum class Side : std::int64_t { kPlain = 0, kTransposed = 1 };

Side turned(Side side) { return side == Side::kPlain ? Side::kTransposed : Side::kPlain; }

std::string gemm(Backward& b, const std::string& left, Side left_side, const std::string& right,
                 Side right_side, double alpha = 1) {
  return b.emit("Gemm", {left, right},
                {{"alpha", static_cast<float>(alpha)},
                 {"transA", static_cast<std::int64_t>(left_side)},
                 {"transB", static_cast<std::int64_t>(right_side)}});
}

// Y = alpha * A' * B' + beta * C, where A' is A or the transpose of A.
Status gemm_rule(Backward& b, Node& node) {
  const std::string &left = node.input(0), &right = node.input(1), &bias = node.input(2);
  const std::string dy = b.gradient(node.output(0));
  const double alpha = node.real("alpha", 1), beta = node.real("beta", 1);
  const Side left_side = node.integer("transA", 0) != 0 ? Side::kTransposed : Side::kPlain;
  const Side right_side = node.integer("transB", 0) != 0 ? Side::kTransposed : Side::kPlain;
  if (b.needs(left))
    b.give(left, left_side == Side::kPlain
                     ? gemm(b, dy, Side::kPlain, right, turned(right_side), alpha)
                     : gemm(b, right, right_side, dy, Side::kTransposed, alpha));
  if (b.needs(right))
    b.give(right, right_side == Side::kPlain
                      ? gemm(b, left, turned(left_side), dy, Side::kPlain, alpha)
                      : gemm(b, dy, Side::kTransposed, left, left_side, alpha));
  if (!bias.empty() && b.needs(bias)) {
    const std::string sum = b.sum_to(dy, b.shape(node.output(0)), b.shape(bias));
    b.give(bias, beta == 1 ? sum : b.emit("Mul", {sum, b.number(beta)}));
  }
  return {};
}

std::string last_two_swapped(Backward& b, const std::string& x, std::size_t rank) {
  Backward::Integers permutation;
  for (std::size_t i = 0; i < rank; ++i) permutation.push_back(static_cast<std::int64_t>(i));
  std::swap(permutation[rank - 1], permutation[rank - 2]);
  return b.transpose(x, permutation);
}

Status matmul(Backward& b, Node& node) {
  std::string left = node.input(0), right = node.input(1), dy = b.gradient(node.output(0));
  Shape left_shape = b.shape(left), right_shape = b.shape(right), y_shape = b.shape(node.output(0));
  // A vector counts as a matrix with one row or column, which the output lacks.
  const bool left_vector = left_shape.size() == 1, right_vector = right_shape.size() == 1;
  if (left_vector || right_vector) {
    if (left_vector) {
      left_shape.insert(left_shape.begin(), 1);
      y_shape.insert(y_shape.end() - (right_vector ? 0 : 1), 1);
      left = b.reshape(left, left_shape);
    }
    if (right_vector) {
      right_shape.push_back(1);
      y_shape.push_back(1);
      right = b.reshape(right, right_shape);
    }
    dy = b.reshape(dy, y_shape);
  }
  const auto give = [&](std::size_t index, const std::string& gradient, const Shape& from,
                        const Shape& to) {
    const std::string& operand = node.input(index);
    std::string out = b.sum_to(gradient, from, to);
    if (to != b.shape(operand)) out = b.reshape(out, b.shape(operand));
    b.give(operand, std::move(out));
  };
  const std::int64_t inner = left_shape.back(), columns = right_shape.back();
  if (right_shape.size() == 2) {  // one product of matrices, also for a batch of rows
    const std::string rows = left_shape.size() == 2 ? dy : b.reshape(dy, {-1, columns});
    if (b.needs(node.input(0))) {
      const std::string product = gemm(b, rows, Side::kPlain, right, Side::kTransposed);
      const Shape& shape = b.shape(node.input(0));
      b.give(node.input(0), shape.size() == 2 ? product : b.reshape(product, shape));
    }
    if (b.needs(node.input(1))) {
      const std::string flat = left_shape.size() == 2 ? left : b.reshape(left, {-1, inner});
      give(1, gemm(b, flat, Side::kTransposed, rows, Side::kPlain), right_shape, right_shape);
    }
    return {};
  }
  Shape batch(y_shape.begin(), y_shape.end() - 2);
  const auto batched = [&](std::int64_t rows, std::int64_t width) {
    Shape out = batch;
    out.push_back(rows);
    out.push_back(width);
    return out;
  };
  if (b.needs(node.input(0))) {
    const std::string turned_right = last_two_swapped(b, right, right_shape.size());
    give(0, b.emit("MatMul", {dy, turned_right}), batched(*(left_shape.end() - 2), inner),
         left_shape);
  }
  if (b.needs(node.input(1))) {
    const std::string turned_left = last_two_swapped(b, left, left_shape.size());
    give(1, b.emit("MatMul", {turned_left, dy}), batched(inner, columns), right_shape);
  }
  return {};
}

// ab,bc->ac: the gradient of ab is ac,bc->ab.
Status einsum(Backward& b, Node& node) {
  std::string equation = node.text("equation", "");
  std::erase(equation, ' ');
  const std::size_t arrow = equation.find("->");
  if (arrow == std::string::npos || equation.find('.') != std::string::npos)
    return Error(Code::kUnsupported, "its equation is \"" + equation + "\"");
  const auto terms = split(std::string_view(equation).substr(0, arrow), ',');
  const std::string_view result = std::string_view(equation).substr(arrow + 2);
  const Error unknown(Code::kUnsupported, "its equation is \"" + equation + "\"");
  std::map<char, std::int64_t> sizes;
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    for (std::size_t at = 0; at < terms.at(i).size(); ++at)  // a size of 1 may be broadcast
      if (const auto size = b.shape(node.input(i)).at(at);
          sizes.emplace(terms[i][at], size).first->second != size)
        return unknown;
  const std::string dy = b.gradient(node.output(0));
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (!b.needs(node.input(i))) continue;
    std::string known(result), reversed(result);
    std::vector<std::string> inputs = {dy};
    for (std::size_t j = 0; j < node.inputs.size(); ++j) {
      if (j == i) continue;
      known += terms.at(j);
      reversed += "," + std::string(terms.at(j));
      inputs.push_back(node.input(j));
    }
    const std::string_view term = terms.at(i);
    for (std::size_t at = 0; at < term.size(); ++at)
      if (known.find(term[at]) == std::string::npos || term.find(term[at], at + 1) != term.npos)
        return unknown;
    reversed += "->" + std::string(term);
    b.give(node.input(i), b.emit("Einsum", std::move(inputs), {{"equation", reversed}}));
  }
  return {};
}

constexpr RuleEntry kMatrixRules[] = {{"Einsum", einsum}, {"Gemm", gemm_rule}, {"MatMul", matmul}};

}  // namespace

std::span<const RuleEntry> matrix_rules() { return kMatrixRules; }

}  // namespace varda::train
