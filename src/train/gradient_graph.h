// Gradients by rewriting: from a model that predicts to a model that also computes a loss and the
// gradient of each weight. Standard ONNX operators are enough, so the engine that serves trains
// too.
//
//   TRY(onnx::Model forward, onnx::parse(bytes));
//   TRY_VOID(onnx::upgrade(forward));
//   TRY(const Facts facts, trace(engine, forward, batch));
//   TRY(const GradientGraph graph, make_gradient_graph(forward, facts, {}));
//   // run graph.model: batch, targets, sample weights, weights -> loss, outputs, gradients
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "onnx/model.h"
#include "tensor/tensor.h"
#include "train/trace.h"

namespace varda::train {

enum class Loss {
  kCrossEntropy,  // classes; the output is scores, Softmax or LogSoftmax, shape [N,classes]
  // Yes or no for each value of a sample, and the mean over them; the output is scores or Sigmoid.
  kBinaryCrossEntropy,
  kMse,    // mean squared error of all values of a sample
  kHuber,  // the mean of e^2 / 2 up to an error e of delta, and of delta * (e - delta / 2) above
};

/// The meaning of the output's values for a loss of classes.
enum class Activation {
  kScores,            // any number; Softmax or Sigmoid follows outside of the model
  kProbabilities,     // the model ends with Softmax or Sigmoid, as the loss expects
  kLogProbabilities,  // the model ends with LogSoftmax
};

/// The operators of the training model.
enum class Operators {
  kStandard,  // ONNX's own: any runtime runs them
  // Also Varda's, on oneDNN: convolutions and normalizations of FP32, and their gradients.
  kOneDnn,
};
/// Domain of Varda's operators. plugins/onnxruntime/onednn.cc has them.
inline constexpr std::string_view kOwnDomain = "varda";

struct GradientOptions {
  Loss loss = Loss::kCrossEntropy;
  double huber_delta = 1;
  std::string output;               // of the model; "": the first
  std::vector<std::string> freeze;  // names of weights that stay, with * and ?
  /// The weights to train, by name; empty: all that are found, but those of `freeze`.
  std::set<std::string> train = {};
  Operators operators = Operators::kStandard;
};

/// The training model and the names of tensors in it. The batch size is that of the facts.
///
/// Inputs: those of the forward model; `targets`, of the type and shape of the output, for classes
/// one row of probabilities a sample; `sample_weights` [N], usually 1/N each; all weights.
/// A sample of weight 0 does not count, which pads an incomplete batch.
struct GradientGraph {
  struct Weight {
    std::string name;      // of the initializer, and of the input
    std::string gradient;  // of the output
  };
  /// BatchNormalization over the batch. `batch_mean` and `batch_variance` are outputs.
  struct Statistics {
    std::string mean, variance;  // the initializers
    std::string batch_mean, batch_variance;
    double momentum = 0.9;  // new = momentum * old + (1 - momentum) * batch
  };
  onnx::Model model;
  std::string targets, sample_weights;
  std::string loss;    // a scalar: the sum over samples of weight * loss
  std::string output;  // of the forward model
  tensor::Shape output_shape;
  Activation activation = Activation::kScores;
  std::vector<Weight> weights;
  std::vector<Statistics> statistics;
};

/// `forward` is a model after onnx::upgrade(); `facts` are of the same model.
///
/// Weights are the floating-point initializers that MatMul, Gemm, Conv, normalizations and Gather
/// read, and the operands of rank 1 and more that arithmetic combines with values that depend on a
/// weight. Other constants stay, such as scales of the input. BatchNormalization uses statistics of
/// the batch if its scale or bias is trained.
///
/// kUnsupported: a gradient is not known; the message names the node, the operator, and the weights
/// to freeze. kInvalid: the output does not fit the loss, or nothing is left to train.
Result<GradientGraph> make_gradient_graph(const onnx::Model& forward, const Facts& facts,
                                          const GradientOptions& options);

}  // namespace varda::train
