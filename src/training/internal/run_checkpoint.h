// The checkpoint of a run: all that another process needs to continue the run with equal bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "training/evaluation.h"

namespace varda::training {

/// Layout: `VARDARU1`, the length of a JSON text (8 bytes, little-endian), the text, the
/// checkpoint of train::Trainer, the best model, and the SHA-256 of all that. The text has the
/// other members and the length of the trainer's checkpoint.
struct RunCheckpoint {
  std::string identity;       // of model, data and settings
  std::int64_t epoch = 0;     // finished epochs, with their evaluation
  std::uint64_t batch = 0;    // finished batches of the next epoch
  double loss_sum = 0;        // of these batches
  std::uint64_t samples = 0;  // of these batches
  double learning_rate = 0;
  double epoch_seconds = 0, seconds = 0;  // of the epoch, of the run
  bool stopped = false;                   // early; no epoch follows
  std::vector<EpochRecord> history;
  std::optional<Evaluation> evaluation;  // of the best epoch, else of the last
  std::int64_t best_epoch = 0;           // early stopping; 0: none yet
  double best_value = 0;
  std::string trainer;
  std::string best_model;  // early stopping: the file of the best epoch

  std::string encode() const;
  /// kCorrupt: not a checkpoint, or damaged.
  static Result<RunCheckpoint> decode(std::string_view bytes);
};

}  // namespace varda::training
