// The local training of one client in federated learning: rounds over the same data, each from
// given weights.
//
//   TRY(auto trainer, LocalTrainer::open(ctx, engine, fs, {.model = bytes, .train = data,
//                                                          .settings = settings}));
//   TRY_VOID(trainer->set_weights(weights));               // of the round
//   TRY(const Evaluation before, trainer->evaluate(ctx));
//   TRY(const RoundResult result, trainer->train(ctx, {.epochs = 1, .seed = 17}, observer));
//
// Formulas: FedProx (Li et al. 2020), SCAFFOLD with option II (Karimireddy et al. 2020), DP-SGD
// (Abadi et al. 2016). A killed round continues from the checkpoint with the same bytes.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "infer/engine.h"
#include "os/file_system.h"
#include "samples/samples.h"
#include "tensor/tensor.h"
#include "training/evaluation.h"
#include "training/run.h"
#include "training/settings.h"

namespace varda::training {

/// DP-SGD. Each step draws samples with probability q = L / N, where L is batchSize * accumulate
/// and N the number of samples. An accountant needs q, `noise` and the steps.
struct PrivacyOptions {
  double clip_norm = 1;  // of each sample's gradient
  double noise = 1;      // the deviation divided by clip_norm; 0: no noise
  // Decides noise and draws. The aggregator must not know this key: it could subtract the noise.
  std::array<std::uint8_t, 32> key{};
};

struct LocalOptions {
  std::string model;  // bytes of the ONNX file
  std::shared_ptr<const samples::Dataset> train;
  std::shared_ptr<const samples::Dataset> evaluation;  // null: `hold_out` of `train`
  double hold_out = 0;                                 // 0: no evaluation
  // `epochs` is the number of rounds: a round counts as an epoch of `schedule`. `earlyStopping` has
  // no effect. `clipNorm` limits the gradient with all terms of the round.
  Settings settings;
  std::optional<PrivacyOptions> privacy;
};

/// Control variates by name, for trained weights. A weight without a tensor has zeros.
struct ControlVariates {
  std::vector<tensor::Named> server, own;
};

struct LocalRound {
  std::int64_t round = 1;   // of `settings.epochs`
  std::int64_t epochs = 1;  // over the data
  std::uint64_t steps = 0;  // updates; above 0 this number replaces `epochs`
  std::uint64_t seed = 1;
  double proximal = 0;  // mu of FedProx
  std::optional<ControlVariates> control;
  bool keep_optimizer = false;  // false: each round begins with a new one
  std::string optimizer;        // RoundResult::optimizer of the last round; "": a new one
  os::Path checkpoint;          // "": none
  std::chrono::milliseconds checkpoint_every{60'000};
};

struct RoundResult {
  // Sorted by name: the weights that trained, and statistics of BatchNormalization.
  std::vector<tensor::Named> delta;          // new - given
  std::vector<tensor::Named> control;        // the next `own`; empty without control variates
  std::vector<tensor::Named> control_delta;  // next - present
  std::uint64_t samples = 0;                 // different samples that trained
  std::uint64_t steps = 0;                   // updates
  double loss = 0;                           // the mean over all samples while the weights changed
  std::string optimizer;                     // the state, if `keep_optimizer`
};

/// Not thread-safe.
class LocalTrainer {
 public:
  /// The first weights are those of the file. `engine` and `fs` outlive the trainer. kInvalid,
  /// kUnsupported: the model, the data or the settings are wrong, or do not fit each other.
  static Result<std::unique_ptr<LocalTrainer>> open(const Context& ctx, infer::Engine& engine,
                                                    os::FileSystem& fs, LocalOptions options);
  virtual ~LocalTrainer() = default;

  /// All FP32 initializers of the file with at least one axis, by name.
  virtual const std::vector<tensor::Spec>& weights() const = 0;
  /// Sets these weights; the others stay. A change of a weight that does not train opens the model
  /// again. kInvalid: an unknown name, another type or shape, or a value that is not finite.
  virtual Status set_weights(std::span<const tensor::Named> weights) = 0;

  /// Trains from the weights of the last set_weights(). Afterwards the trainer holds the new
  /// weights until set_weights(). kCancelled, kTimeout: the context is done; a checkpoint is
  /// written. kInvalid: the round does not fit the settings, or a value is not finite.
  virtual Result<RoundResult> train(const Context& ctx, const LocalRound& round,
                                    Observer& observer) = 0;
  /// Metrics of the present weights on the evaluation data. kInvalid: no evaluation data, or the
  /// loss is not finite.
  virtual Result<Evaluation> evaluate(const Context& ctx) = 0;

  /// The mean loss of the present weights over the samples that train, as evaluate() computes it.
  virtual Result<double> training_loss(const Context& ctx) = 0;

  virtual std::uint64_t samples() const = 0;             // that train
  virtual std::uint64_t evaluation_samples() const = 0;  // 0: evaluate() fails
  /// The probability with which a step of private training draws a sample.
  virtual double sampling_rate() const = 0;
  /// The model file with the present weights.
  virtual Result<std::string> save() const = 0;
};

}  // namespace varda::training
