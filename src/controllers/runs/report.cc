#include "controllers/runs/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "codec/text.h"

namespace varda::controllers::runs {

namespace {

constexpr std::size_t kTextMax = 32;         // of numbers as text
constexpr std::size_t kMessageMax = 1024;    // of errors
constexpr std::size_t kMetricNameMax = 253;  // as in a Model
constexpr std::size_t kFileNameMax = 128;    // of the end of a URL
constexpr std::int64_t kCountMax = 1'000'000'000'000'000;

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

std::optional<ReportedArtifact> artifact_of(const Json& artifacts, const std::string& name) {
  const Json* found = artifacts.find(name);
  if (found == nullptr || !is_file_name(name)) return {};
  ReportedArtifact out;
  out.name = name;
  out.state = codec::clipped((*found)["state"].as_string(), kTextMax);
  out.reason = codec::clipped((*found)["reason"].as_string(), kMessageMax);
  if (is_digest((*found)["sha256"].as_string())) out.sha256 = (*found)["sha256"].as_string();
  out.bytes = count_of((*found)["bytes"]);
  out.sent = count_of((*found)["sent"]);
  return out;
}

}  // namespace

const Json* find_report(const api::EdgeNode* node, std::string_view key, std::string_view uid) {
  if (node == nullptr) return nullptr;
  const auto& workers = node->status.workers;
  const auto found = std::find_if(workers.begin(), workers.end(), [&](const auto& worker) {
    return worker.key == key && worker.uid == uid;
  });
  return found == workers.end() ? nullptr : &found->report;
}

std::optional<ReportedResult> result_of(const Json& report) {
  const Json& final = report.at("results/final");
  if (!final.is_object()) return {};
  const Json &data = final["data"], &artifacts = report["artifacts"];
  ReportedResult out;
  out.artifact = codec::clipped(data["artifact"].as_string(), kMetricNameMax);
  if (!out.artifact.empty()) out.file = artifact_of(artifacts, out.artifact);
  out.report = artifact_of(artifacts, codec::clipped(data["report"].as_string(), kMetricNameMax));
  out.csv = artifact_of(artifacts, codec::clipped(data["csv"].as_string(), kMetricNameMax));
  if (is_file_name(data["file"].as_string())) out.file_name = data["file"].as_string();
  if (is_file_name(data["format"].as_string()) && data["format"].as_string().size() <= 63)
    out.format = data["format"].as_string();
  for (const auto& [name, value] : data["metrics"].as_object()) {
    if (is_metric(name, value) && out.metrics.size() < api::ModelMetricsStatus::kMetricsMax)
      out.metrics.push_back({name, codec::write_json(value), {}});
  }
  out.fingerprint = codec::clipped(data["fingerprint"].as_string(), 128);
  out.samples = count_of(data["samples"]);
  return out;
}

std::optional<ReportedError> error_of(const Json& report) {
  const Json& error = report.at("results/error/data");
  if (!error.is_object()) return {};
  return ReportedError{codec::clipped(error["message"].as_string(), kMessageMax),
                       error["permanent"].as_bool()};
}

std::int64_t count_of(const Json& value) {
  return std::clamp<std::int64_t>(value.as_integer(), 0, kCountMax);
}

std::string number_of(const Json& value) {
  return value.is_number() ? short_number(value.as_double()) : "";
}

std::map<std::string, std::string> numbers_of(const Json& object, std::size_t items_max) {
  std::map<std::string, std::string> out;
  for (const auto& [name, value] : object.as_object()) {
    if (is_metric(name, value) && out.size() < items_max)
      out.emplace(name, short_number(value.as_double()));
  }
  return out;
}

std::string short_number(double value) {
  std::array<char, kTextMax> text{};
  const double size = std::fabs(value);
  std::snprintf(text.data(), text.size(), size >= 1000 && size < 1e15 ? "%.0f" : "%.4g", value);
  return text.data();
}

std::string main_metric(const std::vector<api::ModelMetric>& metrics) {
  if (metrics.empty()) return "";
  const api::ModelMetric* chosen = &metrics.front();
  for (const char* name : {"loss", "mae", "rmse", "f1", "accuracy"}) {
    for (const api::ModelMetric& metric : metrics)
      if (metric.key == name) chosen = &metric;
  }
  const auto number = codec::parse_json(chosen->value);
  const std::string value =
      number.ok() && number->is_number() ? short_number(number->as_double()) : chosen->value;
  return codec::clipped(chosen->key + " " + value, 63);
}

}  // namespace varda::controllers::runs
