// Counts of a service: the sum of reports of nodes and workers.

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codec/digest.h"
#include "controllers/joint/counters.h"
#include "controllers/joint/findings.h"

namespace varda::controllers::joint {

namespace {

using api::JointInferenceServiceStatus;
using api::JointTierStatus;
using codec::Json;

constexpr std::size_t kReasonsMax = 32, kReasonBytesMax = 63;  // of a tier's errors

// The epoch of a report, as a status has room for it.
std::string epoch_of(std::string start) {
  constexpr std::size_t kEpochMax = 63;
  return start.size() <= kEpochMax ? start : codec::Sha256::of(start).hex().substr(0, kEpochMax);
}

// Applies the limits of the status. A node chooses its report, and must not be able to make a
// status that the server refuses.
Json known_counters(const Json& report, const std::vector<Tier>& tiers) {
  Json out = Json::object();
  for (const char* name : {"inferences", "hard", "invalid", "samples", "bytesSent", "forwarded"})
    if (report[name].is_integer()) out.set(name, report[name]);
  for (const char* name : {"answered", "called", "retries"}) {
    for (const Tier& tier : tiers)
      if (const Json& count = report[name][tier.name]; count.is_integer())
        out[name].set(tier.name, count);
  }
  for (const char* name : {"errors", "notCalled"}) {
    for (const Tier& tier : tiers) {
      Json reasons = Json::object();
      for (const auto& [reason, count] : report[name][tier.name].as_object()) {
        if (reasons.size() == kReasonsMax) break;
        if (!reason.empty() && reason.size() <= kReasonBytesMax && count.is_integer())
          reasons.set(reason, count);
      }
      if (!reasons.empty()) out[name].set(tier.name, std::move(reasons));
    }
  }
  return out;
}

// The reasons with the most errors.
std::map<std::string, std::int64_t> errors_of(const Json& reasons) {
  std::vector<std::pair<std::int64_t, std::string>> all;
  for (const auto& [reason, count] : reasons.as_object())
    if (count.as_integer() > 0) all.emplace_back(count.as_integer(), reason);
  std::sort(all.begin(), all.end(), std::greater<>());
  std::map<std::string, std::int64_t> out;
  for (std::size_t i = 0; i < std::min(all.size(), kReasonsMax); ++i)
    out.emplace(all[i].second, all[i].first);
  return out;
}

std::vector<Count> reported_counts(const View& view, const FirstTier& first) {
  std::vector<Count> out;
  for (const PodFinding& pod : first.pods) {
    if (pod.report == nullptr || !pod.report->joint["counters"].is_object()) continue;
    // While its agent is away, the EdgeNode shows the counts of a deleted service with the same
    // name.
    if (pod.report->joint["uid"].string_or(view.service.metadata.uid) != view.service.metadata.uid)
      continue;
    out.push_back({.node = pod.endpoint.node,
                   .epoch = epoch_of(pod.report->joint["epoch"].as_string()),
                   .counters = known_counters(pod.report->joint["counters"], view.plan.tiers)});
  }
  if (view.plan.manages_first_tier()) return out;
  std::string node;
  for (const PodFinding& pod : first.pods) {  // sorted by node
    if (pod.agent == nullptr || pod.endpoint.node == node) continue;
    node = pod.endpoint.node;
    for (const api::EdgeWorkerReport& worker : pod.agent->status.workers) {
      const Json& metrics = worker.report["metrics"];
      if (worker.uid != view.service.metadata.uid || !metrics.is_object()) continue;
      const auto number = [&](const char* name) {
        return std::max<std::int64_t>(metrics[name].as_integer(), 0);
      };
      const std::string& instance = worker.report["registered"]["instance"].as_string();
      out.push_back(
          {.node = node,
           .epoch = epoch_of(worker.key.substr(worker.key.find('/') + 1) +
                             (instance.empty() ? "" : "/" + instance)),
           .counters = Json::object({{"inferences", number("inferenceNumber")},
                                     {"hard", number("hardExampleNumber")},
                                     {"called", Json::object({{view.plan.tiers[1].name,
                                                               number("uploadCloudNumber")}})}}),
           .back = Count::Back::kNewStart});
    }
  }
  return out;
}

std::string decimal(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.2f", value);
  std::string out = text;
  while (out.back() == '0') out.pop_back();
  if (out.back() == '.') out.pop_back();
  return out;
}

// The latency at the slowest node, which its clients see.
std::string latency(const FirstTier& first, const std::string& tier, const char* member) {
  std::int64_t most = 0;
  for (const PodFinding& pod : first.pods) {
    if (pod.report == nullptr) continue;
    for (const Json& one : pod.report->joint["tiers"].as_array()) {
      if (one["name"].as_string() == tier) most = std::max(most, one[member].as_integer());
    }
  }
  return most == 0 ? "" : decimal(static_cast<double>(most) / 1000);
}

void add(const api::SampleReport& one, api::SampleReport& sum) {
  if (sum.version != one.version) sum.version.clear();
  sum.answers += one.answers;
  sum.failures += one.failures;
  sum.hard += one.hard;
  sum.kept += one.kept;
  sum.dropped += one.dropped;
  sum.pending += one.pending;
  sum.bytes += one.bytes;
  if (sum.scores.size() < one.scores.size()) sum.scores.resize(one.scores.size());
  for (std::size_t i = 0; i < one.scores.size(); ++i) sum.scores[i] += one.scores[i];
  if (one.since < sum.since) sum.since = one.since;
}

/// The first node with a problem has the reason.
std::optional<api::SampleReport> samples_of(const View& view, const FirstTier& first) {
  std::optional<api::SampleReport> out;
  if (!view.service.spec.samples) return out;
  std::string node;
  for (const PodFinding& pod : first.pods) {  // sorted by node
    if (pod.report == nullptr || !pod.report->samples || pod.endpoint.node == node) continue;
    node = pod.endpoint.node;
    api::SampleReport one = *pod.report->samples;
    one.unknown = {};
    if (!one.reason.empty()) one.message = "node " + node + ": " + one.message;
    if (!out) {
      out = std::move(one);
      continue;
    }
    add(one, *out);
    if (out->reason.empty()) {
      out->reason = std::move(one.reason);
      out->message = std::move(one.message);
    }
  }
  return out;
}

Counting counting_sources(const View& view, const FirstTier& first) {
  Counting sources;
  for (const auto& node : view.world.nodes) sources.nodes.insert(node->metadata.name);
  if (view.plan.manages_first_tier()) return sources;
  std::map<std::string, std::size_t> workers;
  for (const PodFinding& pod : first.pods)
    sources.side_by_side = std::max(sources.side_by_side, ++workers[pod.endpoint.node]);
  return sources;
}

}  // namespace

void add_counts(const View& view, const FirstTier& first, JointInferenceServiceStatus& status) {
  status.counters = gather(std::move(status.counters), reported_counts(view, first),
                           counting_sources(view, first));
  status.samples = samples_of(view, first);
  const Json all = total(status.counters);
  status.inference_number = all["inferences"].as_integer();
  status.hard_example_number = all["hard"].as_integer();
  status.bytes_sent = all["bytesSent"].as_integer();
  // Answered requests that left the first tier, each once, however many tiers it called. Users'
  // workers do not report this number; they have only one tier to ask.
  const bool has_forwarded = all.contains("forwarded");
  std::int64_t forwarded = all["forwarded"].as_integer();
  for (std::size_t i = 0; i < status.tiers.size(); ++i) {
    JointTierStatus& tier = status.tiers[i];
    tier.answered = all["answered"][tier.name].as_integer();
    tier.called = all["called"][tier.name].as_integer();
    tier.errors = errors_of(all["errors"][tier.name]);
    tier.p50_ms = latency(first, tier.name, "p50Us");
    tier.p99_ms = latency(first, tier.name, "p99Us");
    if (i > 0 && !has_forwarded) forwarded = std::max(forwarded, tier.called);
  }
  if (status.inference_number > 0) {
    status.upload_cloud_ratio = decimal(std::min(
        1.0, static_cast<double>(forwarded) / static_cast<double>(status.inference_number)));
  }
}

void clear_counts(JointInferenceServiceStatus& status) {
  status.inference_number = status.hard_example_number = status.bytes_sent = 0;
  status.upload_cloud_ratio.clear();
  status.counters.clear();
  status.update_time.clear();
  if (status.samples) {
    api::SampleReport rest;
    rest.version = std::move(status.samples->version);
    rest.since = std::move(status.samples->since);
    rest.reason = std::move(status.samples->reason);
    rest.message = std::move(status.samples->message);
    status.samples = std::move(rest);
  }
  for (JointTierStatus& tier : status.tiers) {
    tier.answered = tier.called = 0;
    tier.errors.clear();
    tier.p50_ms.clear();
    tier.p99_ms.clear();
  }
}

}  // namespace varda::controllers::joint
