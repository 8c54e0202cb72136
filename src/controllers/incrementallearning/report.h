// The report of a worker, from EdgeNode.status, as input of the round machine. A worker may be any
// program, so each value is checked and bounded. Pure.
#pragma once

#include <optional>
#include <string>

#include "controllers/incrementallearning/plan.h"

namespace varda::controllers::incrementallearning {

/// The knowledge of a node about the worker of an assignment.
struct StageReport {
  incremental::WorkerReport report;  // of the assignment
  /// The uploaded file of a completed training.
  std::optional<runs::ReportedResult> result;
};

/// The worker's own report. Nothing: it has reported no end of this attempt.
/// `separate`: the comparison follows in another stage.
std::optional<StageReport> reported_end(const Json* report,
                                        const incremental::Assignment& assignment, bool separate);

}  // namespace varda::controllers::incrementallearning
