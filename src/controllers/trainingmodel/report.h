// The report of a run's worker, from EdgeNode.status. A worker may be any program, so each value is
// checked and bounded. docs/guides/training-model.md describes the members. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/ai/training_model.h"
#include "api/edgeai/edge_node.h"
#include "controllers/runs/runs.h"

namespace varda::controllers::trainingmodel {

using codec::Json;

struct WorkerReport {
  std::string phase;  // Training, Evaluating, Uploading; "": no other phase
  api::TrainingProgress progress;
  std::vector<api::TrainingEpoch> history;
  std::optional<runs::ReportedResult> result;
  std::optional<runs::ReportedError> error;
  bool cut = false;  // the node left parts of the report out, because of its size
};

/// The report of the worker `key` with this uid. Empty members: nothing was reported.
WorkerReport read_report(const api::EdgeNode* node, std::string_view key, std::string_view uid);

}  // namespace varda::controllers::trainingmodel
