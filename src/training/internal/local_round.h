// One round of a LocalTrainer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "os/file_system.h"
#include "train/trainer.h"
#include "training/internal/batches.h"
#include "training/internal/round_terms.h"
#include "training/internal/run_data.h"
#include "training/local.h"
#include "training/settings.h"

namespace varda::training {

/// The parts that a round borrows from its LocalTrainer.
struct RoundParts {
  const RunData& data;
  const Batches& batches;    // of one sample for private training
  const Settings& settings;  // of the trainer
  const std::optional<PrivacyOptions>& privacy;
  double expected_samples = 0;  // of a private step
  train::Trainer& trainer;
  const Values& start;  // of Trainer::values()
  os::FileSystem& fs;
  std::string identity;  // of the data, the settings and the model
};

/// Trains; errors as in LocalTrainer::train().
Result<RoundResult> train_round(const Context& ctx, const RoundParts& parts,
                                const LocalRound& round, Observer& observer);

}  // namespace varda::training
