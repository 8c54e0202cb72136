#include "aggregator/model_file.h"

#include <utility>

#include "onnx/model.h"
#include "onnx/weights.h"

namespace varda::aggregator {
namespace {

/// A safetensors file begins with the length of the header and "{". An ONNX file begins with small
/// numbers of fields.
bool looks_like_safetensors(std::string_view bytes) { return bytes.size() > 8 && bytes[8] == '{'; }

}  // namespace

Result<ModelFile> ModelFile::parse(std::string bytes) {
  std::vector<std::string> order;
  if (looks_like_safetensors(bytes)) {
    TRY(const auto file, federated::Safetensors::over(std::as_bytes(std::span(bytes)), nullptr));
    for (const auto& entry : file.header().entries()) order.push_back(entry.name);
    TRY(federated::Weights weights, federated::Weights::from(file));
    return ModelFile({}, "safetensors", std::move(weights), std::move(order));
  }
  std::vector<tensor::Named> tensors;
  {
    TRY(const onnx::Model model, onnx::parse(bytes));
    for (const onnx::Tensor& initializer : model.graph.initializers) {
      if (onnx::dtype_of(initializer.data_type) != tensor::DType::kFp32 || initializer.dims.empty())
        continue;
      TRY(tensor::Tensor value, initializer.value());
      if (value.size() > 0) tensors.push_back({initializer.name, std::move(value)});
    }
  }
  if (tensors.empty())
    return Error(Code::kInvalid, "the ONNX file has no FP32 initializer with an axis to train");
  for (const tensor::Named& one : tensors) order.push_back(one.name);
  TRY(federated::Weights weights, federated::Weights::of(tensors));
  return ModelFile(std::move(bytes), "onnx", std::move(weights), std::move(order));
}

Result<std::string> ModelFile::with(const federated::Weights& weights) const {
  if (format_ == "safetensors") return weights.to_safetensors();
  TRY(const auto tensors, weights.to_tensors());
  return onnx::replace_weights(bytes_, tensors);
}

}  // namespace varda::aggregator
