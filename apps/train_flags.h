// Flags of varda-train. `varda train` has the same flags, for its help and shell completion.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "flag_checks.h"

namespace varda::app {

/// A flag of spec.trainer is absent unless the command line or --config sets it.
struct TrainFlags {
  std::string model, data, out;
  std::string format, evaluation;
  std::optional<double> hold_out;
  std::string checkpoint_every = "60s";
  bool worker = false;
  bool incremental = false, select = false, compare = false, refuse = false, give_back = false;
  std::string old_data, candidate;
  double train_share = 0.8;
  bool is_federated = false;  // --federated, with or without a value
  std::string federated, client_name, when, privacy;
  std::uint64_t bandwidth = 0;
  std::int64_t nice = 0;

  std::vector<std::string> engine_path;

  std::string settings;
  std::optional<std::string> task, loss, optimizer, early_stopping, label;
  std::optional<std::int64_t> epochs, batch_size, classes, seed, threads;
  std::optional<double> learning_rate, momentum;
  std::vector<std::string> freeze;

  std::string log_format = "text";
  std::string log_level = "info";
};

/// A number with a unit, such as 60s.
inline CLI::Validator duration_text() {
  const auto check = [](const std::string& text) -> std::string {
    return varda::parse_duration(text) ? ""
                                       : "\"" + text + "\" is not a duration such as 60s or 5m";
  };
  return CLI::Validator([check](std::string& text) { return check(text); }, "");
}

inline void add_train_flags(CLI::App& parser, TrainFlags& flags) {
  parser.add_option("--model,--base", flags.model,
                    "ONNX file, or directory of a model with model.yaml; required");
  parser.add_option("--data", flags.data, "file or directory of the training data; required");
  parser.add_option("--out,--dir", flags.out,
                    "directory for the result; a stopped run continues there; required");
  parser.add_option("--format", flags.format, "format of the data; default: by the path")
      ->check(
          CLI::IsMember({"csv", "tsv", "idx", "npy", "npz", "imagefolder", "txt", "coco", "voc"}));
  parser
      .add_option("--hold-out", flags.hold_out,
                  "fraction of the data that only evaluates; default: 0.1")
      ->check(CLI::Range(0.0, 0.9))
      ->check(finite_number());
  parser.add_option("--evaluation,--evaluate", flags.evaluation,
                    "other data for the evaluation, instead of --hold-out");
  parser
      .add_option("--checkpoint-every", flags.checkpoint_every,
                  "time between checkpoints; default: 60s")
      ->check(duration_text());
  parser
      .add_option("--engine-path", flags.engine_path,
                  "directory with engine plug-ins, before the program's own (repeatable)")
      ->allow_extra_args(false);
  // The container of a TrainingModel sets this flag; people have no use for it.
  parser.add_flag("--worker", flags.worker)->group("");

  const std::string trainer = "Training (spec.trainer of a TrainingModel)";
  parser
      .add_option("--settings", flags.settings,
                  "YAML or JSON file with the members of spec.trainer; flags win over it")
      ->group(trainer);
  parser.add_option("--task", flags.task, "task of the model; default: classification")
      ->check(CLI::IsMember({"classification", "multilabel", "regression"}))
      ->group(trainer);
  parser.add_option("--epochs", flags.epochs, "passes over the data; default: 5")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{100'000}))
      ->group(trainer);
  parser.add_option("--batch-size", flags.batch_size, "samples of a step; default: 32")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65'536}))
      ->group(trainer);
  parser.add_option("--loss", flags.loss, "loss to reduce; default: by the task")
      ->check(CLI::IsMember({"crossEntropy", "binaryCrossEntropy", "mse", "huber"}))
      ->group(trainer);
  parser.add_option("--optimizer", flags.optimizer, "rule that updates weights; default: sgd")
      ->check(CLI::IsMember({"sgd", "adam", "adamw"}))
      ->group(trainer);
  parser.add_option("--learning-rate", flags.learning_rate, "size of the updates; default: 0.01")
      ->check(CLI::PositiveNumber)
      ->check(finite_number())
      ->group(trainer);
  parser.add_option("--momentum", flags.momentum, "momentum of sgd; default: 0")
      ->check(CLI::Range(0.0, 1.0))
      ->check(finite_number())
      ->group(trainer);
  parser
      .add_option("--early-stopping", flags.early_stopping,
                  "METRIC:PATIENCE, such as accuracy:3: stop after 3 epochs without progress")
      ->group(trainer);
  parser
      .add_option("--freeze", flags.freeze,
                  "names of weights that stay as they are, with * and ? (repeatable)")
      ->allow_extra_args(false)
      ->group(trainer);
  parser
      .add_option("--classes", flags.classes,
                  "replace the last layer by a new one for this number of classes")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}))
      ->group(trainer);
  parser
      .add_option("--label", flags.label,
                  "column of the labels in csv and tsv; default: the last column")
      ->group(trainer);
  parser.add_option("--seed", flags.seed, "seed of all random choices; default: 1")
      ->check(CLI::NonNegativeNumber)
      ->group(trainer);
  parser
      .add_option("--threads", flags.threads,
                  "threads of the engine; default: one for each processor")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{256}))
      ->group(trainer);

  parser
      .add_option("--old-data", flags.old_data,
                  "samples of earlier trainings, for trainer.continual: replay, ewc, agem, slda")
      ->group(trainer);

  const std::string incremental = "Incremental learning";
  parser
      .add_flag("--incremental", flags.incremental,
                "train a round with the samples that no earlier round in --dir has used")
      ->group(incremental);
  parser
      .add_option("--train-share", flags.train_share,
                  "share of the new samples that trains; default: 0.8")
      ->check(CLI::Range(0.0, 1.0))
      ->check(CLI::PositiveNumber)
      ->check(finite_number())
      ->group(incremental);
  parser
      .add_flag("--refuse", flags.refuse,
                "the model of the last round was refused: never replay its samples")
      ->group(incremental);
  parser
      .add_flag("--give-back", flags.give_back,
                "the last round failed: its samples count as new again")
      ->group(incremental);
  parser
      .add_flag("--compare", flags.compare,
                "only compare --candidate with --base on the data of --evaluate")
      ->group(incremental);
  parser.add_option("--candidate", flags.candidate, "the model for --compare")->group(incremental);
  parser
      .add_flag("--select", flags.select,
                "only write lists of the selected samples to --dir/selection")
      ->group(incremental);

  const std::string federated = "Federated learning";
  parser
      .add_option("--federated", flags.federated,
                  "URL of an aggregator; train in its rounds, without --model if it sends one")
      ->expected(0, 1)
      ->group(federated);
  parser
      .add_option("--client-name", flags.client_name,
                  "name for the aggregator; default: the host's")
      ->group(federated);
  parser
      .add_option("--bandwidth", flags.bandwidth,
                  "bytes a second for models, and for updates; default: no limit")
      ->group(federated);
  parser.add_option("--nice", flags.nice, "niceness of the process, from 0 to 19; default: 0")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{19}))
      ->group(federated);
  parser
      .add_option("--when", flags.when,
                  "times to take tasks, as YAML: '{window: {start: \"22:00\", end: \"06:00\"}, "
                  "idle: 0.5, power: mains}'; default: always")
      ->group(federated);
  parser
      .add_option("--privacy", flags.privacy,
                  "clipped samples and noise (DP-SGD), as YAML: '{clipNorm: 1, noise: 1.1}'")
      ->group(federated);

  parser.add_option("--log-format", flags.log_format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->group("Logs");
  parser.add_option("--log-level", flags.log_level, "debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->group("Logs");
}

}  // namespace varda::app
