#include "controllers/trainingmodel/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <set>
#include <utility>

namespace varda::controllers::trainingmodel {

namespace {

using api::TrainingModelStatus;
using runs::count_of;
using runs::number_of;

constexpr std::size_t kTextMax = 32;              // of numbers as text
constexpr std::size_t kEpochMetricsMax = 16;      // as in the status
constexpr double kRemainingMax = 366.0 * 86'400;  // seconds

// "1h02m", "1m20s", "8s"
std::string time_left(const Json& seconds) {
  const double value = seconds.as_double(-1);
  if (!seconds.is_number() || !(value >= 0) || value > kRemainingMax) return "";
  const auto whole = static_cast<std::int64_t>(std::llround(value));
  std::array<char, kTextMax> text{};
  if (whole >= 3600) {
    std::snprintf(text.data(), text.size(), "%lldh%02lldm", static_cast<long long>(whole / 3600),
                  static_cast<long long>(whole / 60 % 60));
  } else if (whole >= 60) {
    std::snprintf(text.data(), text.size(), "%lldm%02llds", static_cast<long long>(whole / 60),
                  static_cast<long long>(whole % 60));
  } else {
    std::snprintf(text.data(), text.size(), "%llds", static_cast<long long>(whole));
  }
  return text.data();
}

std::vector<api::TrainingEpoch> history_of(const Json& list) {
  std::vector<api::TrainingEpoch> out;
  std::set<std::int64_t> seen;
  for (const Json& one : list.as_array()) {
    api::TrainingEpoch epoch;
    epoch.epoch = count_of(one["epoch"]);
    if (epoch.epoch == 0 || !seen.insert(epoch.epoch).second) continue;
    epoch.loss = number_of(one["loss"]);
    epoch.metrics = runs::numbers_of(one["metrics"], kEpochMetricsMax);
    out.push_back(std::move(epoch));
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.epoch < b.epoch; });
  if (out.size() > TrainingModelStatus::kHistoryMax)
    out.erase(out.begin(), out.end() - TrainingModelStatus::kHistoryMax);
  return out;
}

}  // namespace

WorkerReport read_report(const api::EdgeNode* node, std::string_view key, std::string_view uid) {
  WorkerReport out;
  const Json* found = runs::find_report(node, key, uid);
  if (found == nullptr) return out;
  const Json& report = *found;
  out.cut = report.contains("cut");
  const Json& progress = report["progress"];
  const Json& data = progress["data"];
  const std::string& phase = progress["phase"].as_string();
  static constexpr std::string_view kPhases[] = {TrainingModelStatus::kTraining,
                                                 TrainingModelStatus::kEvaluating,
                                                 TrainingModelStatus::kUploading};
  if (std::find(std::begin(kPhases), std::end(kPhases), phase) != std::end(kPhases))
    out.phase = phase;
  out.progress.epoch = count_of(data["epoch"]);
  out.progress.epochs = count_of(data["epochs"]);
  out.progress.step = count_of(progress["step"]);
  out.progress.steps = count_of(progress["steps"]);
  out.progress.loss = number_of(data["loss"]);
  out.progress.samples_per_second = number_of(data["samplesPerSecond"]);
  out.progress.remaining = time_left(data["remaining"]);
  out.history = history_of(data["history"]);
  out.result = runs::result_of(report);
  if (const Json& history = report.at("results/final/data/history");
      out.result && !history.is_null())
    out.history = history_of(history);
  out.error = runs::error_of(report);
  return out;
}

}  // namespace varda::controllers::trainingmodel
