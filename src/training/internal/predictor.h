// The answers of a model file, as a server gives them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "infer/engine.h"
#include "samples/samples.h"
#include "tensor/tensor.h"
#include "train/gradient_graph.h"

namespace varda::training {

/// Not thread-safe.
class Predictor {
 public:
  /// kInvalid, kUnsupported: the file is no model with one input and an FP32 output.
  static Result<Predictor> open(infer::Engine& engine, const std::string& file, unsigned threads);

  /// Rows of every run; 0: any number.
  std::int64_t batch() const { return batch_; }
  /// The meaning of the output's values, by the last operator.
  train::Activation activation() const { return activation_; }
  std::size_t values() const { return values_; }  // of a row; 0: unknown before the first run

  /// The output of each row of the input: [n, values].
  Result<tensor::Tensor> run(const tensor::Tensor& input);

 private:
  Predictor() = default;

  std::string input_, output_;
  std::int64_t batch_ = 0;
  std::size_t values_ = 0;
  train::Activation activation_ = train::Activation::kScores;
  std::unique_ptr<infer::Model> model_;
};

}  // namespace varda::training
