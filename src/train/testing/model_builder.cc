#include "train/testing/model_builder.h"

namespace varda::train::testing {

ModelBuilder& ModelBuilder::input(std::string name, tensor::DType dtype,
                                  const tensor::Shape& shape) {
  auto& dims = graph_.inputs
                   .emplace_back(onnx::ValueInfo{.name = std::move(name),
                                                 .data_type = onnx::data_type_of(dtype)})
                   .shape.emplace();
  for (const std::int64_t size : shape) dims.push_back({.size = size});
  return *this;
}

ModelBuilder& ModelBuilder::initializer(std::string name, const tensor::Tensor& value) {
  graph_.initializers.push_back(onnx::Tensor::of(std::move(name), value));
  return *this;
}

ModelBuilder& ModelBuilder::node(onnx::Node node) {
  graph_.nodes.push_back(std::move(node));
  return *this;
}

ModelBuilder& ModelBuilder::output(std::string name) {
  graph_.outputs.push_back({.name = std::move(name)});
  return *this;
}

onnx::Model ModelBuilder::model(std::int64_t opset) const {
  onnx::Model out;
  out.ir_version = 8;
  out.opsets[""] = opset;
  out.graph = graph_;
  out.graph.name = "test";
  return out;
}

}  // namespace varda::train::testing
