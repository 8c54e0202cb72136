// One evaluation: the model's answers for the evaluation data, and their metrics.
#pragma once

#include <functional>

#include "base/context.h"
#include "base/result.h"
#include "train/trainer.h"
#include "training/evaluation.h"
#include "training/internal/batches.h"
#include "training/internal/run_data.h"
#include "training/settings.h"

namespace varda::training {

/// The outputs of a model for a batch: a row for each sample, of Batches::values() values.
struct Answers {
  train::Activation activation = train::Activation::kScores;
  std::function<Result<tensor::Tensor>(const samples::Batch& batch)> of;
};

/// Calls `report` after each batch. kInvalid: the loss is not finite, or a sample does not fit.
Result<Evaluation> evaluate(const Context& ctx, const RunData& data, const Batches& batches,
                            const Settings& settings, train::Trainer& trainer,
                            const std::function<void()>& report);
/// The same for a model without a trainer.
Result<Evaluation> evaluate(const Context& ctx, const RunData& data, const Batches& batches,
                            const Settings& settings, const Answers& answers,
                            const std::function<void()>& report);

}  // namespace varda::training
