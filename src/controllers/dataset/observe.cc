// Status of a Dataset. Reports of a node are untrusted: every value is checked.

#include <algorithm>
#include <set>
#include <tuple>

#include "codec/text.h"
#include "controllers/dataset/plan.h"
#include "hosting/conditions.h"

namespace varda::controllers::dataset {

namespace {

using api::DatasetStatus;
using api::EdgeDatasetReport;
using codec::clipped;

using hosting::kFalse;
using hosting::kTrue;
using hosting::kUnknown;
using hosting::Verdict;

constexpr std::string_view kReady = "Ready", kReportAccepted = "ReportAccepted";

std::int64_t bounded_sum(std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  return __builtin_add_overflow(a, b, &out) ? INT64_MAX : out;
}

void clear_figures(DatasetStatus& status) {
  DatasetStatus cleared;
  cleared.conditions = std::move(status.conditions);
  cleared.observed_generation = status.observed_generation;
  cleared.unknown = std::move(status.unknown);
  status = std::move(cleared);
}

// The figures that must be equal for the data to be equal.
auto identity(const DatasetStatus& status) {
  return std::tie(status.number_of_samples, status.bytes, status.fingerprint, status.malformed,
                  status.further_classes);
}

// `reported_time` comes from the node's clock. It counts only if the operator's clock makes it
// plausible.
std::string update_time(const std::string& reported_time, const DatasetStatus& before,
                        const meta::ObjectMeta& metadata, std::string_view now) {
  const auto time = meta::parse_time(reported_time);
  const auto latest = meta::parse_time(now);
  if (!time.ok() || !latest.ok() || *time > *latest) return std::string(now);
  for (const std::string& earliest : {metadata.creation_timestamp, before.update_time}) {
    const auto bound = meta::parse_time(earliest);
    if (bound.ok() && *time < *bound) return std::string(now);
  }
  return meta::format_time(*time);
}

void take_classes(const EdgeDatasetReport& report, DatasetStatus& status, std::string& doubt) {
  std::set<std::string> seen;
  status.further_classes = std::max<std::int64_t>(report.further_classes, 0);
  if (report.further_classes < 0) doubt = "furtherClasses is negative";
  for (const api::EdgeClassCount& one : report.classes) {
    if (one.count < 0 || one.name.empty() || one.name.size() > 256 ||
        !seen.insert(one.name).second) {
      doubt = "a class has a negative count, or a missing, too long or duplicate name";
    } else if (status.classes.size() == EdgeDatasetReport::kClassesMax) {
      doubt = "there are more than " + std::to_string(EdgeDatasetReport::kClassesMax) + " classes";
      status.further_classes = bounded_sum(status.further_classes, one.count);
    } else {
      status.classes.push_back({one.name, one.count, {}});
    }
  }
}

// Copies the report's figures into `status`. Returns the fault of the report, or "".
std::string take(const EdgeDatasetReport& report, const DatasetView& dataset, std::string_view now,
                 DatasetStatus& status) {
  if (report.samples && *report.samples < 0) return "the number of samples is negative";
  if (!report.samples) {
    return report.state == EdgeDatasetReport::kCounted
               ? "the state is Counted, but the number of samples is missing"
               : "";
  }
  const DatasetStatus before = status;
  clear_figures(status);
  std::string doubt;
  status.number_of_samples = report.samples;
  status.bytes = std::max<std::int64_t>(report.bytes, 0);
  status.malformed = std::max<std::int64_t>(report.malformed, 0);
  if (report.bytes < 0 || report.malformed < 0) doubt = "a number is negative";
  status.inexact_because = clipped(report.inexact, 1024);
  status.exact = report.inexact.empty();
  if (report.first_malformed) {
    const api::EdgeMalformed& first = *report.first_malformed;
    status.first_malformed = {clipped(first.file, 4096),
                              std::max<std::int64_t>(first.line, 0),
                              std::max<std::int64_t>(first.byte, 0),
                              clipped(first.why, 1024),
                              {}};
    if (first.line < 0 || first.byte < 0) doubt = "a number is negative";
  }
  take_classes(report, status, doubt);
  if (report.header == "yes" || report.header == "no") status.header = report.header;
  status.fingerprint = clipped(report.fingerprint, 128);
  status.node = dataset.spec.node_name;
  const bool same = identity(before) == identity(status) && !before.update_time.empty();
  status.update_time =
      same ? before.update_time : update_time(report.time, before, dataset.metadata, now);
  return doubt;
}

bool same_work(const api::EdgeDataset& a, const api::EdgeDataset& b) {
  return std::tie(a.uid, a.path, a.format, a.header, a.recount_seconds) ==
         std::tie(b.uid, b.path, b.format, b.header, b.recount_seconds);
}

std::string figures(const DatasetStatus& status) {
  if (!status.number_of_samples) return "the dataset has not been counted yet";
  std::string text = std::to_string(*status.number_of_samples) +
                     (*status.number_of_samples == 1 ? " sample" : " samples");
  if (!status.inexact_because.empty())
    text += "; the count may be incomplete: " + status.inexact_because;
  return text;
}

// Why the node cannot report.
std::optional<Verdict> node_out_of_reach(const DatasetView& dataset, const DatasetWorld& world,
                                         const DatasetStatus& status) {
  const std::string& name = dataset.spec.node_name;
  if (world.edge_node == nullptr && world.node == nullptr) {
    return Verdict{
        kFalse, "NodeUnknown",
        "there is no node " + name + ": correct nodeName (`kubectl get nodes` lists them)"};
  }
  if (world.edge_node == nullptr) {
    return Verdict{kFalse, "AgentMissing",
                   "no agent has reported from node " + name + " yet: start `varda agent` there"};
  }
  const meta::Condition* connected =
      meta::find_condition(world.edge_node->status.conditions, "Connected");
  std::string why;
  if (connected != nullptr) {
    if (connected->status == kTrue) return {};
    why = connected->message;
  } else {
    const api::CoreCondition* ready =
        world.node == nullptr ? nullptr : find_condition(world.node->status.conditions, "Ready");
    if (ready == nullptr || ready->status != kUnknown) return {};
    why = ready->message;
  }
  return Verdict{kUnknown, "NodeUnreachable",
                 "node " + name + " is unreachable" +
                     (why.empty() ? "" : " (" + clipped(why, 1024) + ")") + "; " +
                     (status.number_of_samples ? "last report: " : "") + figures(status)};
}

Verdict verdict_of(const EdgeDatasetReport& report, const DatasetView& dataset,
                   const DatasetStatus& status) {
  const std::string node = "node " + dataset.spec.node_name;
  if (report.state == EdgeDatasetReport::kFailed) {
    static constexpr std::string_view kKnown[] = {"PathForbidden", "PathNotFound", "FormatInvalid",
                                                  "ReadFailed"};
    const bool known =
        std::find(std::begin(kKnown), std::end(kKnown), report.reason) != std::end(kKnown);
    const std::string reason = known ? report.reason : "ReadFailed";
    std::string message = node + ": " +
                          (report.message.empty() ? "the dataset could not be counted"
                                                  : clipped(report.message, 4096));
    if (status.number_of_samples) message += "; last count: " + figures(status);
    return {kFalse, reason, message};
  }
  // During a recount the last count stays valid: reporting the recount would cost two writes per
  // round.
  if (report.samples && status.number_of_samples) return {kTrue, "Counted", figures(status)};
  if (report.samples || report.state == EdgeDatasetReport::kCounted)
    return {kFalse, "ReportImplausible",
            node + " sent an invalid report; see the condition ReportAccepted"};
  const std::string last = status.number_of_samples ? "; last count: " + figures(status) : "";
  if (report.state == EdgeDatasetReport::kCounting)
    return {kFalse, "Counting", node + " counts" + last};
  return {kFalse, "WaitingForNode",
          node + " has the dataset in its work list but has not started to count" + last};
}

}  // namespace

bool is_dataset_progress(std::string_view reason) {
  return reason == "Counting" || reason == "WaitingForNode";
}

DatasetStatus observe(const DatasetView& dataset, const DatasetWorld& world, std::string_view now) {
  const std::int64_t generation = dataset.metadata.generation;
  DatasetStatus status = dataset.status;
  if (status.observed_generation != generation) {
    clear_figures(status);
    std::erase_if(status.conditions, [](const meta::Condition& condition) {
      return condition.type == kReportAccepted;
    });
  }
  status.observed_generation = generation;
  const auto conclude = [&](const Verdict& ready) {
    meta::set_condition(status.conditions,
                        {std::string(kReady), std::string(ready.status), ready.reason,
                         clipped(ready.message, 8192), generation, ""},
                        now);
    return std::move(status);
  };

  if (const auto problem = spec_problem(dataset))
    return conclude({kFalse, problem->reason, problem->message});
  const auto work = work_for(dataset);
  if (!work) return status;  // the dataset is being deleted

  const std::string node = "node " + dataset.spec.node_name;
  const EdgeDatasetReport* report = nullptr;
  bool is_assigned = false, acknowledged = false;
  if (world.edge_node != nullptr) {
    const api::EdgeNode& edge_node = *world.edge_node;
    const api::EdgeDataset* assigned = edge_node.spec.find_dataset(work->key);
    if (assigned == nullptr && edge_node.spec.datasets.size() >= kDatasetsPerNode) {
      return conclude({kFalse, "TooManyDatasets",
                       node + " watches " + std::to_string(edge_node.spec.datasets.size()) +
                           " older datasets, which is the maximum: delete one of them, or put this "
                           "dataset on another node"});
    }
    is_assigned = assigned != nullptr && same_work(*assigned, *work);
    acknowledged =
        is_assigned && edge_node.status.observed_generation >= edge_node.metadata.generation;
    if (acknowledged) {
      report = edge_node.status.find_dataset(work->key);
      if (report != nullptr && report->uid != work->uid) report = nullptr;  // of a deleted namesake
    }
  }
  if (report != nullptr) {
    const std::string doubt = take(*report, dataset, now, status);
    if (!doubt.empty()) {
      meta::set_condition(status.conditions,
                          {std::string(kReportAccepted), std::string(kFalse), "ReportImplausible",
                           node + " sent a report with invalid values, which are ignored: " + doubt,
                           generation, ""},
                          now);
    } else {
      std::erase_if(status.conditions, [](const meta::Condition& condition) {
        return condition.type == kReportAccepted;
      });
    }
  }
  if (const auto verdict = node_out_of_reach(dataset, world, status)) return conclude(*verdict);
  if (report != nullptr) return conclude(verdict_of(*report, dataset, status));
  // After an unrelated change of the node's list, the last report stays valid until the agent reads
  // the list.
  const meta::Condition* ready = meta::find_condition(status.conditions, kReady);
  static constexpr std::string_view kNotOfTheNode[] = {"TooManyDatasets", "NodeUnknown",
                                                       "AgentMissing"};
  if (is_assigned && !acknowledged && ready != nullptr &&
      ready->observed_generation == generation &&
      std::find(std::begin(kNotOfTheNode), std::end(kNotOfTheNode), ready->reason) ==
          std::end(kNotOfTheNode)) {
    return status;
  }
  return conclude({kFalse, "WaitingForNode",
                   acknowledged ? node + " has read its work list but has not reported this "
                                         "dataset yet; agents of earlier versions cannot count"
                                : node + " has not read its work list yet"});
}

}  // namespace varda::controllers::dataset
