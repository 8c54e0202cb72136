// Small ONNX models for tests.
#pragma once

#include <string>

#include "onnx/model.h"
#include "tensor/tensor.h"

namespace varda::train::testing {

class ModelBuilder {
 public:
  /// -1 in the shape: any size.
  ModelBuilder& input(std::string name, tensor::DType dtype, const tensor::Shape& shape);
  ModelBuilder& initializer(std::string name, const tensor::Tensor& value);
  ModelBuilder& node(onnx::Node node);
  ModelBuilder& output(std::string name);
  onnx::Model model(std::int64_t opset = 17) const;
  std::string bytes(std::int64_t opset = 17) const { return onnx::serialize(model(opset)); }

 private:
  onnx::Graph graph_;
};

}  // namespace varda::train::testing
