#include "controllers/trainingmodel/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <set>
#include <utility>

#include "codec/text.h"

namespace varda::controllers::trainingmodel {

namespace {

using api::TrainingModelStatus;

constexpr std::size_t kTextMax = 32;          // of numbers as text
constexpr std::size_t kMessageMax = 1024;     // of errors
constexpr std::size_t kMetricNameMax = 253;   // as in a Model
constexpr std::size_t kEpochMetricsMax = 16;  // as in the status
constexpr std::size_t kFileNameMax = 128;     // of the end of a URL
constexpr std::int64_t kCountMax = 1'000'000'000'000'000;
constexpr double kRemainingMax = 366.0 * 86'400;  // seconds

std::int64_t count_of(const Json& value) {
  return std::clamp<std::int64_t>(value.as_integer(), 0, kCountMax);
}

std::string number_of(const Json& value) {
  return value.is_number() ? short_number(value.as_double()) : "";
}

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

bool is_file_name(std::string_view name) {
  return !name.empty() && name.size() <= kFileNameMax && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

bool is_digest(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool is_metric(const std::string& name, const Json& value) {
  return !name.empty() && name.size() <= kMetricNameMax && value.is_number();
}

std::vector<api::TrainingEpoch> history_of(const Json& list) {
  std::vector<api::TrainingEpoch> out;
  std::set<std::int64_t> seen;
  for (const Json& one : list.as_array()) {
    api::TrainingEpoch epoch;
    epoch.epoch = count_of(one["epoch"]);
    if (epoch.epoch == 0 || !seen.insert(epoch.epoch).second) continue;
    epoch.loss = number_of(one["loss"]);
    for (const auto& [name, value] : one["metrics"].as_object()) {
      if (is_metric(name, value) && epoch.metrics.size() < kEpochMetricsMax)
        epoch.metrics.emplace(name, short_number(value.as_double()));
    }
    out.push_back(std::move(epoch));
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.epoch < b.epoch; });
  if (out.size() > TrainingModelStatus::kHistoryMax)
    out.erase(out.begin(), out.end() - TrainingModelStatus::kHistoryMax);
  return out;
}

std::optional<ReportedArtifact> artifact_of(const Json& artifacts, const std::string& name) {
  const Json* found = artifacts.find(name);
  if (found == nullptr) return {};
  ReportedArtifact out;
  out.state = codec::clipped((*found)["state"].as_string(), kTextMax);
  out.reason = codec::clipped((*found)["reason"].as_string(), kMessageMax);
  if (is_digest((*found)["sha256"].as_string())) out.sha256 = (*found)["sha256"].as_string();
  out.bytes = count_of((*found)["bytes"]);
  out.sent = count_of((*found)["sent"]);
  return out;
}

ReportedResult result_of(const Json& data, const Json& artifacts) {
  ReportedResult out;
  out.artifact = codec::clipped(data["artifact"].as_string(), kMetricNameMax);
  if (!out.artifact.empty()) out.file = artifact_of(artifacts, out.artifact);
  out.report = artifact_of(artifacts, codec::clipped(data["report"].as_string(), kMetricNameMax));
  if (is_file_name(data["file"].as_string())) out.file_name = data["file"].as_string();
  if (is_file_name(data["format"].as_string()) && data["format"].as_string().size() <= 63)
    out.format = data["format"].as_string();
  for (const auto& [name, value] : data["metrics"].as_object()) {
    if (is_metric(name, value) && out.metrics.size() < TrainingModelStatus::kMetricsMax)
      out.metrics.push_back({name, codec::write_json(value), {}});
  }
  out.fingerprint = codec::clipped(data["fingerprint"].as_string(), 128);
  out.samples = count_of(data["samples"]);
  return out;
}

}  // namespace

std::string short_number(double value) {
  std::array<char, kTextMax> text{};
  const double size = std::fabs(value);
  std::snprintf(text.data(), text.size(), size >= 1000 && size < 1e15 ? "%.0f" : "%.4g", value);
  return text.data();
}

WorkerReport read_report(const api::EdgeNode* node, std::string_view key, std::string_view uid) {
  WorkerReport out;
  if (node == nullptr) return out;
  const auto& workers = node->status.workers;
  const auto found = std::find_if(workers.begin(), workers.end(), [&](const auto& worker) {
    return worker.key == key && worker.uid == uid;
  });
  if (found == workers.end()) return out;
  const Json& report = found->report;
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
  if (const Json& final = report.at("results/final"); final.is_object()) {
    out.result = result_of(final["data"], report["artifacts"]);
    if (final["data"].contains("history")) out.history = history_of(final["data"]["history"]);
  }
  if (const Json& error = report.at("results/error/data"); error.is_object()) {
    out.error = ReportedError{codec::clipped(error["message"].as_string(), kMessageMax),
                              error["permanent"].as_bool()};
  }
  return out;
}

}  // namespace varda::controllers::trainingmodel
