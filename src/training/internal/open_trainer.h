// Opens the trainer of a run, with batches that fit the model and the data.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "infer/engine.h"
#include "train/trainer.h"
#include "training/internal/batches.h"
#include "training/internal/run_data.h"
#include "training/settings.h"

namespace varda::training {

struct Opened {
  Batches batches;
  std::unique_ptr<train::Trainer> trainer;
};

/// `file` is an ONNX model; `data` is prepared. A head of `settings` replaces the last layer.
/// kInvalid, kUnsupported: model, data and settings do not fit each other.
Result<Opened> open_trainer(infer::Engine& engine, const RunData& data, const Settings& settings,
                            std::string file);

}  // namespace varda::training
