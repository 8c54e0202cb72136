// The report of a run's worker, from EdgeNode.status. A worker may be any program, so each value is
// checked and bounded. docs/guides/training-model.md describes the members. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/ai/training_model.h"
#include "api/edgeai/edge_node.h"

namespace varda::controllers::trainingmodel {

using codec::Json;

/// A file that the worker handed over to its node.
struct ReportedArtifact {
  std::string state;  // Waiting, Uploading, Uploaded, Failed
  std::string reason;
  std::string sha256;  // "": not valid
  std::int64_t bytes = 0, sent = 0;
};

/// results/final
struct ReportedResult {
  std::string artifact;  // "": missing
  std::optional<ReportedArtifact> file;
  std::string file_name;  // end of the URL; "": none
  // The report of the run for people, which was put to /v1/artifacts too. Absent: none.
  std::optional<ReportedArtifact> report;
  std::string format;
  std::vector<api::ModelMetric> metrics;
  std::string fingerprint;
  std::int64_t samples = 0;
};

/// results/error
struct ReportedError {
  std::string message;
  bool permanent = false;
};

struct WorkerReport {
  std::string phase;  // Training, Evaluating, Uploading; "": no other phase
  api::TrainingProgress progress;
  std::vector<api::TrainingEpoch> history;
  std::optional<ReportedResult> result;
  std::optional<ReportedError> error;
  bool cut = false;  // the node left parts of the report out, because of its size
};

/// The report of the worker `key` with this uid. Empty members: nothing was reported.
WorkerReport read_report(const api::EdgeNode* node, std::string_view key, std::string_view uid);

/// "0.9712", "18234": at most 4 significant digits, but no rounding before the point.
std::string short_number(double value);

}  // namespace varda::controllers::trainingmodel
