// One round of incremental learning: select samples, train a candidate, compare it with the base.
//
// In a pod the variables are those of a TrainingModel, and
//
//   INCREMENTAL         the assignment as JSON (training/incremental_task.h); absent: the worker
//   API BASELINE_MODEL_URL  the model that the candidate is compared with; absent: the base
//   CANDIDATE_MODEL_URL the model to compare, with --compare
//   REPLAY_DATASET_URL  old samples from elsewhere, with REPLAY_DATASET_FORMAT
//
// MODEL_URL is a directory that stays from round to round. It has `ledger.json`, `round-N/` with
// the candidate of the last round, and `selection/` with the lists of --select.
#pragma once

#include <optional>
#include <string>

#include "base/context.h"
#include "base/result.h"
#include "codec/json.h"
#include "contract.h"
#include "infer/engine.h"
#include "job.h"
#include "os/file_system.h"
#include "reporter.h"
#include "training/comparison.h"
#include "training/incremental_task.h"
#include "worker_api.h"

namespace varda::trainapp {

struct IncrementalJob {
  // `model` is the base, `evaluation` the frozen set, `directory` that of the round.
  Job job;
  std::optional<os::Path> baseline;   // compared with the candidate; absent: the base
  std::optional<os::Path> candidate;  // compare_round() only
  training::IncrementalTask task;
  os::Path directory;  // stays from round to round
};

/// The directory of a round below that of the job.
os::Path round_directory(const os::Path& directory, std::int64_t round);

/// kInvalid: the message names the variable. `assignment` is the value of INCREMENTAL, or that of
/// the worker API.
Result<IncrementalJob> read_incremental_job(const Environment& environment,
                                            const codec::Json& assignment);

/// Selects, trains and compares. Without new samples there is no model, and `report` has the member
/// `skipped`. A killed round continues with the same samples and the same bytes.
Result<Trained> train_round(const Context& ctx, const IncrementalJob& incremental,
                            infer::Engines& engines, os::FileSystem& fs,
                            training::Observer& observer);

/// Compares `candidate` with the base on the frozen set, and on the samples that the round held
/// back if a round selected some.
Result<Trained> compare_round(const Context& ctx, const IncrementalJob& incremental,
                              infer::Engines& engines, os::FileSystem& fs);

/// Selects, and writes `selection/train.EXT` and `selection/test.EXT` for a user's trainer: EXT is
/// csv or tsv for tables, else txt. In the stage Eval only the latter. `report` has the numbers.
Result<Trained> write_lists(const Context& ctx, const IncrementalJob& incremental,
                            os::FileSystem& fs);

/// `data/CLASS: 300 -> 352 of 360 right`, a line for each slice.
std::string summary(const codec::Json& report);

enum class RoundAction { kTrain, kCompare, kSelect };

struct IncrementalParts {
  infer::Engines& engines;
  os::FileSystem& fs;
  WorkerApi::Options api = {};
  Reporter::Options reporter = {};
};
/// Runs in a pod, with reports to the node's agent. The exit code is that of work().
int work_incremental(const Context& ctx, const Environment& environment, RoundAction action,
                     IncrementalParts parts);

/// Runs a round on a desk. `directory/desk.json` counts the rounds.
struct DeskRound {
  IncrementalJob incremental;  // without a round
  enum class Last { kConsumed, kRefused, kFailed } last = Last::kConsumed;
};
Result<Trained> train_round_here(const Context& ctx, DeskRound desk, infer::Engines& engines,
                                 os::FileSystem& fs, training::Observer& observer);

}  // namespace varda::trainapp
