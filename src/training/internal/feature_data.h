// The features of all samples in memory, as a dataset: what the frozen beginning of a model
// computes, with the labels of the samples.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/context.h"
#include "base/result.h"
#include "samples/samples.h"
#include "train/trainer.h"
#include "training/internal/batches.h"

namespace varda::training {

/// Reads every sample of `data` once, in batches as `batches` describes them, through `part`. The
/// result has the samples under the same numbers, and 4 bytes for each value of their features.
/// `report` runs after each batch.
Result<std::shared_ptr<const samples::Dataset>> features_of(
    const Context& ctx, std::shared_ptr<const samples::Dataset> data, const Batches& batches,
    train::FrozenPart& part, const std::function<void()>& report);

}  // namespace varda::training
