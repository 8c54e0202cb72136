// Metrics of a model's answers, in bounded memory.
//
//   Metrics metrics({.task = Task::kClassification, .outputs = 10});
//   for (...) metrics.add(row, label);
//   metrics.values();  // {"accuracy": 0.97, "auc": 0.998, "f1": …, "loss": …, …}
//
// | task | values |
// |---|---|
// | classification | accuracy, precision, recall, f1, auc, loss |
// | multilabel | the same; accuracy counts samples with all labels right |
// | regression | mae, rmse, loss |
//
// Precision, recall and F1 of two classes are those of class 1. Otherwise they are means over the
// classes; a class without samples and predictions has no part. A value that divides by 0 is 0. AUC
// is the area under the receiver operating characteristic, for more than two classes the mean of
// one class against the rest. It is absent if no class has samples of both kinds. The loss is that
// of the training without label smoothing and class weights.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "samples/samples.h"
#include "train/gradient_graph.h"

namespace varda::training {

/// Not thread-safe.
class Metrics {
 public:
  struct Options {
    samples::Task task = samples::Task::kClassification;
    std::size_t outputs = 0;  // values in a row; classification: 1 for two classes, else classes
    train::Loss loss = train::Loss::kCrossEntropy;
    train::Activation activation = train::Activation::kScores;
    double huber_delta = 1;
    /// AUC keeps so many scores. Above, the samples are thinned evenly: each second is dropped, and
    /// from then on each second counts, and so on.
    std::size_t auc_scores_max = 1'000'000;
  };
  static constexpr std::size_t kConfusionClassesMax = 200;

  explicit Metrics(const Options& options);

  /// Adds a row of the model's output with the class; returns the loss of this sample.
  double add(std::span<const float> row, std::int64_t label);
  /// The same for multilabel (targets 0 and 1) and regression.
  double add(std::span<const float> row, std::span<const float> targets);

  /// The class with the largest value.
  std::int64_t predicted_class(std::span<const float> row) const;
  /// multilabel, and one output: a larger value means yes.
  float threshold() const;

  std::uint64_t samples() const { return samples_; }
  std::map<std::string, double> values() const;
  /// classification: samples by expected class (row) and predicted class. Empty above
  /// kConfusionClassesMax classes.
  const std::vector<std::vector<std::uint64_t>>& confusion() const { return confusion_; }

 private:
  struct Counts {
    std::uint64_t right = 0, predicted = 0, expected = 0;
  };
  /// Values for comparisons between samples: probabilities.
  std::vector<float> probabilities(std::span<const float> row) const;
  void keep_scores(std::span<const float> scores, std::span<const std::uint8_t> truth);
  void add_class_values(std::map<std::string, double>& out) const;

  const Options options_;
  const std::size_t classes_;  // or labels
  std::uint64_t samples_ = 0, right_ = 0;
  double loss_ = 0, absolute_ = 0, squared_ = 0;
  std::vector<Counts> counts_;
  std::vector<std::vector<std::uint64_t>> confusion_;
  // Scores and truth of the samples that AUC uses, row by row.
  std::vector<float> scores_;
  std::vector<std::uint8_t> truth_;
  std::uint64_t stride_ = 1;
};

}  // namespace varda::training
