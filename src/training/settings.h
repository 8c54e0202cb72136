// Settings of one training run, as in spec.trainer of a TrainingModel and in the file of
// `varda train --settings`.
//
//   TRY(const codec::Json json, codec::parse_json(text));
//   TRY(const training::Settings settings, training::parse_settings(json));
//
// The members of the JSON have the names and the defaults of kSettings in settings.cc;
// docs/design/027-training-runs.md has an example.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/json.h"
#include "samples/samples.h"
#include "train/gradient_graph.h"
#include "train/optimizer.h"

namespace varda::training {

struct Schedule {
  enum class Kind : std::uint8_t { kConstant, kStep, kCosine };
  Kind kind = Kind::kConstant;
  std::int64_t warmup_epochs = 0;  // the rate rises linearly in these epochs
  std::int64_t every_epochs = 1;   // step: `factor` multiplies the rate so often
  double factor = 0.1;
  double minimum = 0;  // of the rate, after the warm-up
};

struct EarlyStopping {
  std::string metric;         // of the evaluation: loss, accuracy, …
  std::int64_t patience = 3;  // epochs without a better value

  /// loss, mae and rmse are better if lower.
  bool lower_is_better() const { return metric == "loss" || metric == "mae" || metric == "rmse"; }
};

struct Settings {
  samples::Task task = samples::Task::kClassification;
  std::int64_t epochs = 5;
  std::int64_t batch_size = 32;
  train::Loss loss = train::Loss::kCrossEntropy;
  double label_smoothing = 0;
  double huber_delta = 1;
  train::OptimizerOptions optimizer;
  Schedule schedule;
  double clip_norm = 0;         // 0: no limit
  std::int64_t accumulate = 1;  // batches for an update
  std::optional<EarlyStopping> early_stopping;
  std::vector<std::string> freeze;           // names of weights, with * and ?
  std::optional<std::int64_t> head_classes;  // replaces the last layer
  bool balanced_classes = false;             // classWeights: balanced
  samples::Augment augment;
  std::string label_column;                  // csv, tsv; "": the last
  std::vector<std::string> feature_columns;  // csv, tsv; empty: all others
  std::uint64_t seed = 1;                    // below 2^63
  std::int64_t threads = 0;                  // 0: one for each processor
  /// Memory for features of frozen layers, in MiB; 0: none are kept. No part of the result.
  std::int64_t feature_cache = 128;
};

/// Absent members have their defaults. kInvalid: a member is unknown, out of range or does not fit
/// another; the message has the path of the member and the value.
Result<Settings> parse_settings(const codec::Json& json);
/// All members. parse_settings() reads the same settings back.
codec::Json to_json(const Settings& settings);

std::string_view to_string(samples::Task task);
std::string_view to_string(train::Loss loss);

}  // namespace varda::training
