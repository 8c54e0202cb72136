// The report of the aggregation worker, from EdgeNode.status. A worker may be any program, so each
// value is checked and bounded. docs/design/028 describes the members. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/edgeai/edge_node.h"
#include "api/sedna/federated_learning_job.h"
#include "controllers/runs/runs.h"

namespace varda::controllers::federatedlearning {

/// The state of a training worker as the aggregation worker sees it.
struct ReportedParticipant {
  std::string state;  // Joined, Training, Uploaded, Dropped, Ended
  std::string reason;
};

struct AggregatorReport {
  bool present = false;  // the worker has reported its progress
  std::string phase;    // Waiting, Training, Aggregating, Evaluating, Uploading; "": no other phase
  std::string message;  // of the progress
  std::int64_t round = 0, rounds = 0;
  std::int64_t joined = 0;
  std::int64_t bytes_up = 0, bytes_down = 0;
  std::string epsilon;
  std::vector<api::ModelMetric> metrics;
  std::map<std::string, ReportedParticipant> participants;  // by the name of the pod
  std::vector<api::FederatedRound> history;
  std::optional<runs::ReportedResult> result;
  std::int64_t result_participants = 0;
  std::string updates_digest;  // of the digests of all accepted updates
  std::optional<runs::ReportedError> error;
  bool cut = false;  // the node left parts of the report out, because of its size
};

/// The report of the worker `key` (NAMESPACE/NAME) with this uid.
AggregatorReport read_report(const api::EdgeNode* node, const std::string& key,
                             std::string_view uid);

}  // namespace varda::controllers::federatedlearning
