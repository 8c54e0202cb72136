// Methods against forgetting in a run: replay, EWC, LwF and A-GEM.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "infer/engine.h"
#include "samples/samples.h"
#include "tensor/pool.h"
#include "train/trainer.h"
#include "training/internal/batches.h"
#include "training/internal/predictor.h"
#include "training/internal/round_terms.h"
#include "training/internal/run_data.h"
#include "training/run.h"

namespace varda::training {

/// Adds the reservoir of `request.old` to `request.train`, and returns the number of its samples.
Result<std::uint64_t> add_replay(const Context& ctx, Request& request);

/// A class-balanced reservoir of the data, ascending.
Result<std::vector<std::size_t>> reservoir_of(const Context& ctx, const samples::Dataset& data,
                                              std::size_t samples, std::size_t per_class,
                                              std::uint64_t seed);

/// The terms of EWC, LwF and A-GEM. All of them follow from the base, the data and the settings, so
/// a checkpoint has nothing of them. Not thread-safe.
class ContinualTerms {
 public:
  /// `base` is the file that the run trains. All references outlive the object. kUnsupported: the
  /// model does not fit a method. kInvalid: a method has no samples.
  static Result<std::unique_ptr<ContinualTerms>> open(const Context& ctx, infer::Engine& engine,
                                                      const RunData& data, const Request& request,
                                                      const Batches& batches,
                                                      const std::string& base);

  /// The gradients change, so the trainer must not step by itself.
  bool changes_gradients() const { return fisher_.has_value() || !memory_.empty(); }
  /// Adds the soft targets of LwF.
  Status complete(const samples::Batch& batch, train::Batch& made);
  struct Update {
    std::uint64_t number = 0;  // from 0 over the run
    double learning_rate = 0;
  };
  /// Adds EWC, then projects by A-GEM.
  Status change(const Context& ctx, train::Trainer& trainer, const Update& update,
                Values& gradients);

 private:
  ContinualTerms(const RunData& data, const Request& request, const Batches& batches)
      : data_(data), request_(request), batches_(batches) {}
  Status measure_fisher(const Context& ctx, infer::Engine& engine, const std::string& base);
  Status choose_memory(const Context& ctx);

  const RunData& data_;
  const Request& request_;
  const Batches& batches_;
  std::optional<Predictor> teacher_;  // LwF
  std::optional<Values> fisher_;      // EWC, of each weight
  Values start_;
  std::vector<std::size_t> memory_;  // A-GEM: samples of `request_.old`
  tensor::Pool batch_memory_{1};
};

}  // namespace varda::training
