// Builds the backward part of a training graph, node by node.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "onnx/model.h"
#include "onnx/names.h"
#include "train/gradient_graph.h"
#include "train/trace.h"

namespace varda::train {

/// Emits operators and sums gradients. All shapes are constants, because the facts have a fixed
/// batch size. Emitted operators have the same form in opsets 17 to 21.
class Backward {
 public:
  /// `graph` outlives this object; emit() adds initializers to it.
  Backward(onnx::Graph& graph, const Facts& facts, tensor::DType dtype, Operators operators)
      : graph_(graph), facts_(facts), names_(graph), dtype_(dtype), operators_(operators) {}

  using Attributes = std::vector<onnx::Attribute>;
  using Integers = std::vector<std::int64_t>;

  /// Adds a node and returns the name of the output.
  std::string emit(std::string_view op, std::vector<std::string> inputs,
                   Attributes attributes = {});
  /// Adds a node of Varda's own operators, with a name for each wanted output; "" for the others.
  std::vector<std::string> emit_own(std::string_view op, std::vector<std::string> inputs,
                                    const std::vector<bool>& wanted, Attributes attributes);
  std::string integers(const Integers& values);       // a constant [n]
  std::string number(double value);                   // a constant scalar of the model's type
  std::string constant(const tensor::Tensor& value);  // any constant
  std::string reals(const tensor::Shape& shape, std::span<const double> values);
  tensor::DType dtype() const { return dtype_; }
  Operators operators() const { return operators_; }

  std::string reshape(const std::string& x, const tensor::Shape& shape);
  std::string transpose(const std::string& x, const Integers& permutation);
  std::string expand(const std::string& x, const tensor::Shape& shape);
  std::string zeros(const tensor::Shape& shape);
  /// Sums over the axes and keeps them with size 1.
  std::string sum(const std::string& x, const Integers& axes);
  /// Reverses broadcasting: `x` of shape `from` becomes `to`.
  std::string sum_to(const std::string& x, const tensor::Shape& from, const tensor::Shape& to);
  std::string slice(const std::string& x, std::int64_t axis, std::int64_t begin, std::int64_t end);
  /// Zeros before and after along each axis; negative numbers cut.
  std::string pad(const std::string& x, const Integers& before, const Integers& after);

  const Fact* find(const std::string& tensor) const;
  const tensor::Shape& shape(const std::string& tensor) const;
  /// The values of a constant list of integers, such as axes. kUnsupported: it is not constant.
  Result<Integers> values(const std::string& tensor) const;
  /// The values of an initializer. kUnsupported: another tensor, or another type than FP32.
  Result<std::vector<float>> floats(const std::string& tensor) const;
  /// A name for a further output of a forward node.
  std::string fresh(const std::string& wanted) { return names_.fresh(wanted); }
  void learn(const std::string& tensor, Fact fact) { added_[tensor] = std::move(fact); }

  /// Tensors that depend on a trained weight.
  std::set<std::string> needed;
  bool needs(const std::string& tensor) const { return needed.contains(tensor); }
  /// Adds a term to the gradient of a tensor; ignored if the tensor needs none.
  void give(const std::string& tensor, std::string gradient);
  /// The gradient of a tensor: the sum of all terms; "" without any.
  std::string gradient(const std::string& tensor);

  /// The nodes emitted since the last call.
  std::vector<onnx::Node> take() { return std::exchange(nodes_, {}); }

 private:
  onnx::Graph& graph_;
  const Facts& facts_;
  Facts added_;
  onnx::Names names_;
  const tensor::DType dtype_;
  const Operators operators_;
  std::size_t emitted_ = 0;
  std::vector<onnx::Node> nodes_;
  std::map<std::string, std::vector<std::string>> terms_;
  std::map<Integers, std::string> integers_;
  std::map<double, std::string> numbers_;
};

/// Permutation that swaps the first two of `rank` axes.
Backward::Integers swapped(std::size_t rank);

}  // namespace varda::train
