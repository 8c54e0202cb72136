// Trainer: one model, steps over batches, and the trained file.
//
//   TRY(auto trainer, Trainer::open(engine, std::move(file), batch, {.optimizer = {...}}));
//   for (const Batch& batch : batches) TRY(const Step step, trainer->step(batch, rate));
//   TRY(const std::string trained, trainer->save());  // the file with new weights
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "infer/engine.h"
#include "tensor/tensor.h"
#include "train/gradient_graph.h"
#include "train/optimizer.h"

namespace varda::train {

struct Batch {
  std::vector<tensor::Named> inputs;  // those of the model
  tensor::Tensor targets;             // of the output's shape; for classes one_hot()
  tensor::Tensor sample_weights;      // [N], usual sum 1; 0 for samples that only fill the batch
};

/// A row for each label: 1 at the label and 0 elsewhere; with smoothing s, 1 - s + s/classes and
/// s/classes. kInvalid: a label is out of range; the message has the sample's index.
Result<tensor::Tensor> one_hot(std::span<const std::int64_t> labels, std::int64_t classes,
                               double smoothing = 0);
/// [N], 1/N each.
tensor::Tensor equal_weights(std::size_t samples);

struct Step {
  double loss = 0;        // the weighted sum over the batch, before the update
  tensor::Tensor output;  // of the model, before the update; in the engine's memory
};

/// The frozen beginning of a model, which computes the features that the rest reads.
class FrozenPart {
 public:
  virtual ~FrozenPart() = default;
  /// The features of one batch of the model's inputs; in the engine's memory.
  virtual Result<tensor::Tensor> run(std::span<const tensor::Named> inputs) = 0;
  virtual const std::string& name() const = 0;     // of the features
  virtual const tensor::Shape& shape() const = 0;  // for one batch
};

/// Not thread-safe. The weights are in memory once; the engine reads them in place.
class Trainer {
 public:
  struct Options {
    GradientOptions gradients;  // without `operators`
    // kOneDnn: if the engine has oneDNN, else kStandard.
    Operators operators = Operators::kOneDnn;
    OptimizerOptions optimizer;
    double clip_norm = 0;  // the largest norm of all gradients together; 0: no limit
    unsigned threads = 1;  // of the engine, for each run
  };
  /// `file` is an ONNX model. All batches have the sizes of `example`. `engine` outlives the
  /// trainer. Errors as in onnx::parse(), onnx::upgrade() and make_gradient_graph(). kUnsupported:
  /// weights other than FP32.
  static Result<std::unique_ptr<Trainer>> open(infer::Engine& engine, std::string file,
                                               std::span<const tensor::Named> example,
                                               const Options& options);
  virtual ~Trainer() = default;

  /// Runs the batch and updates the weights. kInvalid: the batch does not fit, or the loss is not
  /// finite; the weights are unchanged then.
  virtual Result<Step> step(const Batch& batch, double learning_rate) = 0;
  /// Runs the batch; the next step() also uses the gradients. The sample weights of all batches of
  /// one update then have the sum 1. A checkpoint does not hold such gradients.
  virtual Result<Step> accumulate(const Batch& batch) = 0;
  /// The sums of the gradients of accumulate(), one for each of weights(). The next update begins
  /// without them.
  virtual std::vector<std::vector<float>> take_gradients() = 0;
  /// Updates the weights with these gradients, one for each of weights(). kInvalid: the gradients
  /// are not finite, and the options have a `clip_norm`; the weights are unchanged then.
  virtual Status apply(std::span<const std::vector<float>> gradients, double learning_rate) = 0;
  /// The output for a batch of the same sizes, with the present weights and as in serving:
  /// BatchNormalization uses the stored statistics.
  virtual Result<tensor::Tensor> predict(std::span<const tensor::Named> inputs) = 0;

  /// Separates the frozen beginning. Later batches of step(), accumulate() and predict() have one
  /// input, the features. Weights, checkpoints and save() stay those of the whole model.
  ///
  /// Both parts run `check` first, also with its samples in other rows. Null, and nothing
  /// changes: some bit differs from the whole model, no layer is frozen before the first trained
  /// weight, several tensors lead to the rest, or a sample has more than `values_max` features.
  virtual Result<std::unique_ptr<FrozenPart>> separate(const Batch& check,
                                                       std::uint64_t values_max) = 0;

  /// The shape for one batch, and the meaning of the values.
  virtual const tensor::Shape& output_shape() const = 0;
  virtual Activation activation() const = 0;
  /// The names of the trained weights.
  virtual std::vector<std::string> weights() const = 0;
  virtual std::uint64_t steps() const = 0;
  /// The weights, then mean and variance of each trained BatchNormalization. The next step writes
  /// into these tensors.
  virtual std::span<const tensor::Named> values() const = 0;
  /// Copies the tensors over those of values() with the same names, and drops accumulated
  /// gradients. kInvalid: an unknown name, another type or shape; nothing changes then.
  virtual Status set_values(std::span<const tensor::Named> values) = 0;
  /// The optimizer forgets all steps.
  virtual void reset_optimizer() = 0;

  /// The model file with the present weights; all else is as in the file given to open().
  virtual Result<std::string> save() const = 0;
  /// Weights, optimizer and the number of steps. Training from a restored checkpoint gives the same
  /// bytes as without the interruption.
  virtual std::string checkpoint() const = 0;
  /// kCorrupt: damaged bytes. kInvalid: a checkpoint of another model or optimizer.
  virtual Status restore(std::string_view checkpoint) = 0;
};

}  // namespace varda::train
