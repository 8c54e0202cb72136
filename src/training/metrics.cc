#include "training/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"

namespace varda::training {
namespace {

using samples::Task;
using train::Activation;
using train::Loss;

/// The logarithm of a probability that may be rounded to 0.
double log_of(double probability) {
  return std::log(std::max<double>(probability, std::numeric_limits<float>::min()));
}

/// log(sum(exp(values)))
double log_sum_exp(std::span<const float> values) {
  const double top = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (const float value : values) sum += std::exp(double{value} - top);
  return top + std::log(sum);
}

double cross_entropy(std::span<const float> row, std::size_t label, Activation activation) {
  switch (activation) {
    case Activation::kProbabilities:
      return -log_of(row[label]);
    case Activation::kLogProbabilities:
      return -double{row[label]};
    default:
      return log_sum_exp(row) - double{row[label]};
  }
}

double binary_cross_entropy(double value, double target, Activation activation) {
  if (activation == Activation::kProbabilities)
    return -target * log_of(value) - (1 - target) * log_of(1 - value);
  return std::max(value, 0.0) - value * target + std::log1p(std::exp(-std::abs(value)));
}

double huber(double error, double delta) {
  const double size = std::abs(error);
  return size <= delta ? error * error / 2 : delta * (size - delta / 2);
}

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

/// The probability that a random sample of the class has a higher score than another one; equal
/// scores count half. `columns` scores belong to each sample.
std::optional<double> area_under_curve(std::span<const float> scores,
                                       std::span<const std::uint8_t> truth, std::size_t column,
                                       std::size_t columns) {
  std::vector<std::pair<float, std::uint8_t>> sorted;
  for (std::size_t i = column; i < scores.size(); i += columns)
    sorted.emplace_back(scores[i], truth[i]);
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  double below = 0, positives = 0, wins = 0;  // below: negatives with lower scores
  for (std::size_t begin = 0; begin < sorted.size();) {
    std::size_t end = begin;
    double yes = 0;
    for (; end < sorted.size() && sorted[end].first == sorted[begin].first; ++end)
      yes += sorted[end].second;
    const double no = static_cast<double>(end - begin) - yes;
    wins += yes * (below + no / 2);
    positives += yes;
    below += no;
    begin = end;
  }
  if (positives == 0 || below == 0) return std::nullopt;
  return wins / (positives * below);
}

}  // namespace

Metrics::Metrics(const Options& options)
    : options_(options),
      classes_(options.task == Task::kClassification && options.outputs == 1 ? 2
                                                                             : options.outputs) {
  if (options.task == Task::kRegression) return;
  counts_.resize(classes_);
  if (options.task == Task::kClassification && classes_ <= kConfusionClassesMax)
    confusion_.assign(classes_, std::vector<std::uint64_t>(classes_));
}

std::int64_t Metrics::predicted_class(std::span<const float> row) const {
  if (row.size() == 1) return row[0] > threshold() ? 1 : 0;
  return std::max_element(row.begin(), row.end()) - row.begin();
}

float Metrics::threshold() const {
  return options_.activation == Activation::kProbabilities ? 0.5f : 0.0f;
}

std::vector<float> Metrics::probabilities(std::span<const float> row) const {
  std::vector<float> out(row.begin(), row.end());
  // Sigmoid keeps the order of one value's scores; softmax does not, because of the other values.
  if (options_.loss != Loss::kCrossEntropy || options_.activation == Activation::kProbabilities)
    return out;
  const double sum = options_.activation == Activation::kScores ? log_sum_exp(row) : 0;
  for (float& value : out) value = static_cast<float>(std::exp(double{value} - sum));
  return out;
}

void Metrics::keep_scores(std::span<const float> scores, std::span<const std::uint8_t> truth) {
  const std::size_t columns = scores.size();
  if (2 * columns > options_.auc_scores_max || samples_ % stride_ != 0) return;
  if (scores_.size() + columns > options_.auc_scores_max) {
    std::size_t kept = 0;
    for (std::size_t row = 0; row * columns < scores_.size(); row += 2, ++kept) {
      std::copy_n(&scores_[row * columns], columns, &scores_[kept * columns]);
      std::copy_n(&truth_[row * columns], columns, &truth_[kept * columns]);
    }
    scores_.resize(kept * columns);
    truth_.resize(kept * columns);
    stride_ *= 2;
    if (samples_ % stride_ != 0) return;
  }
  scores_.insert(scores_.end(), scores.begin(), scores.end());
  truth_.insert(truth_.end(), truth.begin(), truth.end());
}

double Metrics::add(std::span<const float> row, std::int64_t label) {
  CHECK(row.size() == options_.outputs && label >= 0 && static_cast<std::size_t>(label) < classes_);
  const auto expected = static_cast<std::size_t>(label);
  double loss = 0;
  if (options_.loss == Loss::kCrossEntropy) {
    loss = cross_entropy(row, expected, options_.activation);
  } else {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool yes = row.size() == 1 ? expected == 1 : i == expected;
      loss += binary_cross_entropy(row[i], yes ? 1 : 0, options_.activation);
    }
    loss /= static_cast<double>(row.size());
  }
  loss_ += loss;
  const auto predicted = static_cast<std::size_t>(predicted_class(row));
  ++counts_[expected].expected;
  ++counts_[predicted].predicted;
  if (expected == predicted) {
    ++counts_[expected].right;
    ++right_;
  }
  if (!confusion_.empty()) ++confusion_[expected][predicted];
  if (std::isfinite(loss)) {  // a row with NaN has no order
    std::vector<float> scores = probabilities(row);
    std::vector<std::uint8_t> truth(scores.size());
    if (classes_ == 2) {
      scores = {scores.back()};
      truth = {static_cast<std::uint8_t>(label)};
    } else {
      truth[expected] = 1;
    }
    keep_scores(scores, truth);
  }
  ++samples_;
  return loss;
}

double Metrics::add(std::span<const float> row, std::span<const float> targets) {
  CHECK(row.size() == options_.outputs && targets.size() == row.size());
  const bool labels = options_.task == Task::kMultiLabel;
  double loss = 0;
  bool right = true;
  std::vector<std::uint8_t> truth;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double error = double{row[i]} - targets[i];
    if (labels) {
      loss += binary_cross_entropy(row[i], targets[i], options_.activation);
      const bool expected = targets[i] > 0.5f, predicted = row[i] > threshold();
      truth.push_back(expected ? 1 : 0);
      counts_[i].expected += expected ? 1 : 0;
      counts_[i].predicted += predicted ? 1 : 0;
      counts_[i].right += expected && predicted ? 1 : 0;
      right = right && expected == predicted;
    } else {
      loss += options_.loss == Loss::kHuber ? huber(error, options_.huber_delta) : error * error;
      absolute_ += std::abs(error);
      squared_ += error * error;
    }
  }
  loss /= static_cast<double>(row.size());
  loss_ += loss;
  if (labels) {
    right_ += right ? 1 : 0;
    if (std::isfinite(loss)) keep_scores(row, truth);
  }
  ++samples_;
  return loss;
}

void Metrics::add_class_values(std::map<std::string, double>& out) const {
  const bool classes = options_.task == Task::kClassification;
  double precision = 0, recall = 0, f1 = 0, present = 0;
  for (std::size_t i = classes && classes_ == 2 ? 1 : 0; i < classes_; ++i) {
    const Counts& one = counts_[i];
    if (classes && classes_ > 2 && one.expected + one.predicted == 0) continue;
    ++present;
    precision += share(one.right, one.predicted);
    recall += share(one.right, one.expected);
    f1 += share(2 * one.right, one.expected + one.predicted);
  }
  out["accuracy"] = share(right_, samples_);
  out["precision"] = present > 0 ? precision / present : 0;
  out["recall"] = present > 0 ? recall / present : 0;
  out["f1"] = present > 0 ? f1 / present : 0;

  const std::size_t columns = classes && classes_ == 2 ? 1 : classes_;
  double sum = 0, defined = 0;
  for (std::size_t i = 0; i < columns; ++i)
    if (const auto area = area_under_curve(scores_, truth_, i, columns)) {
      sum += *area;
      ++defined;
    }
  if (defined > 0) out["auc"] = sum / defined;
}

std::map<std::string, double> Metrics::values() const {
  std::map<std::string, double> out;
  if (samples_ == 0) return out;
  const auto count = static_cast<double>(samples_);
  out["loss"] = loss_ / count;
  if (options_.task == Task::kRegression) {
    const double values = count * static_cast<double>(options_.outputs);
    out["mae"] = absolute_ / values;
    out["rmse"] = std::sqrt(squared_ / values);
  } else {
    add_class_values(out);
  }
  return out;
}

}  // namespace varda::training
