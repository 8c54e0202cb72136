#include "train/internal/backward.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace varda::train {

std::string Backward::emit(std::string_view op, std::vector<std::string> inputs,
                           Attributes attributes) {
  std::string output = names_.fresh("varda.train/" + std::to_string(emitted_++));
  nodes_.push_back({.op_type = std::string(op),
                    .inputs = std::move(inputs),
                    .outputs = {output},
                    .attributes = std::move(attributes)});
  return output;
}

std::vector<std::string> Backward::emit_own(std::string_view op, std::vector<std::string> inputs,
                                            const std::vector<bool>& wanted,
                                            Attributes attributes) {
  std::vector<std::string> outputs;
  for (const bool one : wanted)
    outputs.push_back(one ? names_.fresh("varda.train/" + std::to_string(emitted_++)) : "");
  nodes_.push_back({.op_type = std::string(op),
                    .inputs = std::move(inputs),
                    .outputs = outputs,
                    .attributes = std::move(attributes),
                    .domain = std::string(kOwnDomain)});
  return outputs;
}

std::string Backward::constant(const tensor::Tensor& value) {
  std::string name = names_.fresh("varda.train/c" + std::to_string(graph_.initializers.size()));
  graph_.initializers.push_back(onnx::Tensor::of(name, value));
  return name;
}

std::string Backward::reals(const tensor::Shape& shape, std::span<const double> values) {
  if (dtype_ == tensor::DType::kFp64)
    return constant(tensor::Tensor::of<double>(dtype_, shape, values).value());
  const std::vector<float> single(values.begin(), values.end());
  return constant(tensor::Tensor::of<float>(dtype_, shape, std::span(single)).value());
}

std::string Backward::integers(const Integers& values) {
  std::string& name = integers_[values];
  if (name.empty())
    name = constant(tensor::Tensor::of<std::int64_t>(
                        tensor::DType::kInt64, {static_cast<std::int64_t>(values.size())}, values)
                        .value());
  return name;
}

std::string Backward::number(double value) {
  std::string& name = numbers_[value];
  if (!name.empty()) return name;
  name = reals({}, {{value}});
  return name;
}

std::string Backward::reshape(const std::string& x, const tensor::Shape& shape) {
  // A size of 0 would mean "as in the input".
  Attributes attributes;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end())
    attributes.push_back({"allowzero", std::int64_t{1}});
  return emit("Reshape", {x, integers(shape)}, std::move(attributes));
}

std::string Backward::transpose(const std::string& x, const Integers& permutation) {
  return emit("Transpose", {x}, {{"perm", permutation}});
}

std::string Backward::expand(const std::string& x, const tensor::Shape& shape) {
  return emit("Expand", {x, integers(shape)});
}

std::string Backward::zeros(const tensor::Shape& shape) { return expand(number(0), shape); }

std::string Backward::sum(const std::string& x, const Integers& axes) {
  return emit("ReduceSum", {x, integers(axes)}, {{"keepdims", std::int64_t{1}}});
}

std::string Backward::sum_to(const std::string& x, const tensor::Shape& from,
                             const tensor::Shape& to) {
  if (from == to) return x;
  CHECK(from.size() >= to.size());
  const std::size_t extra = from.size() - to.size();
  Integers axes;
  for (std::size_t i = 0; i < from.size(); ++i)
    if (i < extra || (to[i - extra] == 1 && from[i] != 1))
      axes.push_back(static_cast<std::int64_t>(i));
  const std::string summed = axes.empty() ? x : sum(x, axes);
  return extra == 0 ? summed : reshape(summed, to);
}

std::string Backward::slice(const std::string& x, std::int64_t axis, std::int64_t begin,
                            std::int64_t end) {
  return emit("Slice", {x, integers({begin}), integers({end}), integers({axis})});
}

std::string Backward::pad(const std::string& x, const Integers& before, const Integers& after) {
  Integers pads = before;
  pads.insert(pads.end(), after.begin(), after.end());
  if (std::all_of(pads.begin(), pads.end(), [](std::int64_t size) { return size == 0; })) return x;
  return emit("Pad", {x, integers(pads)});
}

const Fact* Backward::find(const std::string& tensor) const {
  if (const auto it = added_.find(tensor); it != added_.end()) return &it->second;
  const auto it = facts_.find(tensor);
  return it != facts_.end() ? &it->second : nullptr;
}

const tensor::Shape& Backward::shape(const std::string& tensor) const {
  const Fact* fact = find(tensor);
  CHECK(fact != nullptr);  // make_gradient_graph() checks the tensors of each node
  return fact->shape;
}

Result<Backward::Integers> Backward::values(const std::string& tensor) const {
  const Fact* fact = find(tensor);
  if (fact == nullptr || !fact->integers)
    return Error(Code::kUnsupported, "\"" + tensor + "\" is no short list of integers");
  return *fact->integers;
}

Result<std::vector<float>> Backward::floats(const std::string& tensor) const {
  const onnx::Tensor* initializer = graph_.initializer(tensor);
  if (initializer == nullptr || initializer->data_type != onnx::data_type_of(tensor::DType::kFp32))
    return Error(Code::kUnsupported, "\"" + tensor + "\" is no constant list of numbers");
  TRY(const tensor::Tensor value, initializer->value());
  const auto values = value.values<float>();
  return std::vector<float>(values.begin(), values.end());
}

void Backward::give(const std::string& tensor, std::string gradient) {
  if (needs(tensor)) terms_[tensor].push_back(std::move(gradient));
}

std::string Backward::gradient(const std::string& tensor) {
  const auto it = terms_.find(tensor);
  if (it == terms_.end()) return "";
  std::vector<std::string>& terms = it->second;
  while (terms.size() > 1) {
    const std::string last = terms.back();
    terms.pop_back();
    terms.back() = emit("Add", {terms.back(), last});
  }
  return terms.front();
}

Backward::Integers swapped(std::size_t rank) {
  Backward::Integers out(rank);
  std::iota(out.begin(), out.end(), 0);
  std::swap(out.at(0), out.at(1));
  return out;
}

}  // namespace varda::train
