// Findings about a service, from which observe() makes the status. The first tier's come from
// reports of nodes, further tiers' from their objects in the cluster. Counts come from all. Pure;
// shared by the files of observe().
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/sedna/joint_inference_service.h"
#include "controllers/joint/plan.h"
#include "hosting/conditions.h"
#include "hosting/pod_problem.h"
#include "hosting/servers.h"
#include "hosting/service_address.h"

namespace varda::controllers::joint {

using hosting::kFalse;
using hosting::kTrue;
using hosting::kUnknown;
using hosting::no;
using hosting::Verdict;

inline Verdict yes(std::string message) { return {kTrue, "Serving", std::move(message)}; }
/// The reason in a node's report; `otherwise` if it cannot be a condition's reason.
inline std::string reason_of(const codec::Json& report, std::string_view otherwise) {
  constexpr std::size_t kReasonMax = 128;  // as in EdgeNode.status
  const std::string& reason = report["reason"].as_string();
  return reason.empty() || reason.size() > kReasonMax ? std::string(otherwise) : reason;
}
/// "2 of 3"
inline std::string counted(std::size_t some, std::size_t all) {
  return std::to_string(some) + " of " + std::to_string(all);
}

/// Borrows all members.
struct View {
  const api::JointInferenceService& service;
  const JointPlan& plan;
  const JointWorld& world;
  const hosting::Options& options;

  hosting::Machines machines() const {
    return options.node_port_host.empty() ? hosting::Machines::kMany : hosting::Machines::kOne;
  }
  /// The first tier's key in EdgeNode.spec.models.
  std::string model_key() const {
    return service.metadata.key().str() + "." + plan.tiers.front().name;
  }
};

/// One pod of the first tier, or the place for one.
struct PodFinding {
  api::JointEndpoint endpoint;
  Verdict answers;
  std::optional<Verdict> flaw;  // the pod answers, but not as the spec wants
  bool leaving = false;
  workers::EdgeNodePtr agent;
  const api::EdgeModelReport* report = nullptr;  // of our server's model
};

struct FirstTier {
  std::vector<PodFinding> pods;
  std::size_t ready = 0;
  Verdict verdict;  // of EdgeReady
  Verdict answers;  // of Ready
  std::string url, version;
};
FirstTier find_first(const View& view);
api::JointTierStatus status_of(const View& view, const FirstTier& first);

struct LaterTier {
  api::JointTierStatus status;
  Verdict verdict;
};
std::vector<LaterTier> find_further(const View& view);
/// The verdict of CloudReady.
Verdict cloud_verdict(const std::vector<LaterTier>& tiers);

/// Adds the present reports of nodes and workers to the sums of the status.
void add_counts(const View& view, const FirstTier& first, api::JointInferenceServiceStatus& status);
/// Clears the members that change with every request.
void clear_counts(api::JointInferenceServiceStatus& status);

}  // namespace varda::controllers::joint
