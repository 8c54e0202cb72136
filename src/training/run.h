// One training run: a model and data in, a trained model and metrics out.
//
//   TRY(auto data, samples::Dataset::open(ctx, tree, path, options));
//   TRY(const Outcome outcome, run(ctx, engine, fs, {.model = bytes, .train = data,
//                                  .settings = settings, .directory = "/out"}, observer));
//
// A killed run continues from DIRECTORY/checkpoint, and ends with the bytes of a run without the
// kill. docs/design/027-training-runs.md has the decisions.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "infer/engine.h"
#include "os/file_system.h"
#include "samples/samples.h"
#include "training/evaluation.h"
#include "training/settings.h"

namespace varda::training {

struct Progress {
  std::string phase;                   // Training, Evaluating
  std::int64_t epoch = 0, epochs = 0;  // epoch: from 1
  std::uint64_t step = 0, steps = 0;   // batches, of the whole run
  double loss = 0;                     // the mean of the epoch so far
  double samples_per_second = 0;       // of this process, without evaluations
  double remaining_seconds = 0;
};

struct Outcome {
  os::Path model;                         // DIRECTORY/model.onnx
  std::map<std::string, double> metrics;  // of the evaluation of this model; empty: none
  std::vector<EpochRecord> history;       // of all epochs, also those before a restart
  std::vector<std::string> classes;
  std::vector<std::vector<std::uint64_t>> confusion;  // rows: expected
  std::vector<Worst> worst;                           // at most kWorstMax
  bool stopped_early = false;
  std::uint64_t samples = 0;   // of the training data, without those held out
  std::uint64_t replayed = 0;  // old samples among the training data
  std::string fingerprint;     // of the training data
  double seconds = 0;          // over all processes
};

/// Called on the thread of run().
class Observer {
 public:
  virtual ~Observer() = default;
  /// At most five times a second.
  virtual void progress(const Progress& progress) = 0;
  /// Once for each epoch; after a restart also for the epochs of earlier processes.
  virtual void epoch(const EpochRecord& record) = 0;
};

struct Request {
  std::string model;  // bytes of the ONNX file
  std::shared_ptr<const samples::Dataset> train;
  std::shared_ptr<const samples::Dataset> evaluation;  // null: `hold_out` of `train`
  // Samples of earlier trainings for the methods of `settings.continual`; null: none.
  std::shared_ptr<const samples::Dataset> old;
  double hold_out = 0.1;        // 0: no evaluation
  std::size_t classes_min = 2;  // classification: with samples; 1 where other clients have others
  Settings settings;
  os::Path directory;  // receives model.onnx, metrics.json; holds `checkpoint` while running
  std::chrono::milliseconds checkpoint_every{60'000};
};

/// Blocks until done. One run at a time uses a directory.
///
/// `settings.continual.replay` adds a class-balanced reservoir of `old` to the training data.
///
/// If the directory has the files of the same run, the run returns their outcome at once.
///
/// A checkpoint that is damaged, or of other data, settings or another model, is ignored with a
/// warning. A checkpoint that cannot be written is a warning too.
///
/// kCancelled, kTimeout: the context is done; a checkpoint is written. kInvalid, kUnsupported: the
/// model, the data or the settings are wrong, or do not fit each other; the message says what to
/// change. kExhausted: the disk is full.
Result<Outcome> run(const Context& ctx, infer::Engine& engine, os::FileSystem& fs, Request request,
                    Observer& observer);

/// The content of metrics.json, which also has an identity of the run and a digest of the model.
codec::Json to_json(const Outcome& outcome);

}  // namespace varda::training
