// Findings in the caches about the nodes that serve. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "controllers/incrementallearning/plan.h"

namespace varda::controllers::incrementallearning {

struct ServerFinding {
  std::string name;  // of the InferenceModel or the Pod
  std::string url;   // "": does not answer
  bool ready = false;
  hosting::Problem problem;                      // if not ready
  incremental::NodeReport report;                // input of the round machine
  std::int64_t restarts = 0;                     // of the server's container
  std::int64_t restarts_before = 0;              // of them, before the version served
  std::int64_t pending = 0;                      // samples that wait for a label
  std::optional<api::EdgeSamplesReport> labels;  // absent: the node does not look for labels
};

/// In the order of a roll-out.
std::vector<ServerFinding> look_at_servers(const api::IncrementalLearningJob& job,
                                           const IncrementalPlan& plan,
                                           const IncrementalWorld& world);

}  // namespace varda::controllers::incrementallearning
