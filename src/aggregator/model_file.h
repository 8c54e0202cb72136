// The model of a job as a file: ONNX, or safetensors. Its weights are trained, and the result is
// the same file with other weights.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "federated/weights.h"

namespace varda::aggregator {

/// Immutable.
class ModelFile {
 public:
  /// `bytes` is an ONNX file without external values, or a safetensors file. The weights of an ONNX
  /// file are the FP32 initializers with at least one axis. kInvalid: neither, or no weights.
  static Result<ModelFile> parse(std::string bytes);

  const federated::Weights& weights() const { return weights_; }
  /// Names of the weights in the order of the file: of the initializers, or of the values.
  const std::vector<std::string>& order() const { return order_; }
  /// "onnx" or "safetensors"
  const std::string& format() const { return format_; }
  /// "model.onnx" or "model.safetensors"
  std::string file_name() const { return "model." + format_; }
  const std::string& bytes() const { return bytes_; }
  /// The file with these weights.
  Result<std::string> with(const federated::Weights& weights) const;

 private:
  ModelFile(std::string bytes, std::string format, federated::Weights weights,
            std::vector<std::string> order)
      : bytes_(std::move(bytes)),
        format_(std::move(format)),
        weights_(std::move(weights)),
        order_(std::move(order)) {}
  std::string bytes_, format_;
  federated::Weights weights_;
  std::vector<std::string> order_;
};

}  // namespace varda::aggregator
