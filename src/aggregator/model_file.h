// The model of a job as a file: ONNX, or safetensors. Its weights are trained, and the result is
// the same file with other weights.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "federated/weights.h"

namespace varda::aggregator {

/// Immutable, except for forget_weights().
class ModelFile {
 public:
  /// `bytes` is an ONNX file without external values, or a safetensors file. The weights of an ONNX
  /// file are the FP32 initializers with at least one axis. kInvalid: neither, or no weights.
  static Result<ModelFile> parse(std::string bytes);

  /// Not after forget_weights().
  const federated::Weights& weights() const { return weights_.value(); }
  const federated::Layout& layout() const { return *layout_; }
  /// Frees the memory of the weights. Only the beginning of a job needs them.
  void forget_weights() { weights_.reset(); }
  /// Names of the weights in the order of the file: of the initializers, or of the values.
  const std::vector<std::string>& order() const { return order_; }
  /// "onnx" or "safetensors"
  const std::string& format() const { return format_; }
  /// "model.onnx" or "model.safetensors"
  std::string file_name() const { return "model." + format_; }
  /// Content of an ONNX file; empty for safetensors.
  const std::string& bytes() const { return bytes_; }
  /// The file with these weights.
  Result<std::string> with(const federated::Weights& weights) const;

 private:
  ModelFile(std::string bytes, std::string format, federated::Weights weights,
            std::vector<std::string> order)
      : bytes_(std::move(bytes)),
        format_(std::move(format)),
        layout_(weights.layout_pointer()),
        weights_(std::move(weights)),
        order_(std::move(order)) {}
  std::string bytes_, format_;
  federated::LayoutPointer layout_;
  std::optional<federated::Weights> weights_;
  std::vector<std::string> order_;
};

}  // namespace varda::aggregator
