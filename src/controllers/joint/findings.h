// What is found out about a service before it becomes its status: of the first tier by what nodes report, of further ones by what
// stands for them in the cluster, and what all of them have counted. Pure; between the files that make up observe().
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/sedna/joint_inference_service.h"
#include "controllers/inferencemodel/pod_problem.h"
#include "controllers/joint/plan.h"
#include "controllers/service_address.h"

namespace varda::controllers::joint {

inline constexpr std::string_view kTrue = "True", kFalse = "False", kUnknown = "Unknown";

/// What a condition says.
struct Verdict {
  std::string_view status = kFalse;
  std::string reason;
  std::string message;
};

inline Verdict no(Problem problem) { return {kFalse, std::move(problem.reason), std::move(problem.message)}; }
inline Verdict no(std::string reason, std::string message) { return {kFalse, std::move(reason), std::move(message)}; }
inline Verdict yes(std::string message) { return {kTrue, "Serving", std::move(message)}; }
/// The reason that a node gives in its report, where that can be a condition's.
inline std::string reason_of(const codec::Json& report, std::string_view otherwise) {
  constexpr std::size_t kReasonMax = 128;  // as in EdgeNode.status
  const std::string& reason = report["reason"].as_string();
  return reason.empty() || reason.size() > kReasonMax ? std::string(otherwise) : reason;
}
/// "2 of 3"
inline std::string counted(std::size_t some, std::size_t all) { return std::to_string(some) + " of " + std::to_string(all); }

/// Borrows all of it.
struct View {
  const api::JointInferenceService& service;
  const JointPlan& plan;
  const JointWorld& world;
  const InferenceModelOptions& options;

  Machines machines() const { return options.node_port_host.empty() ? Machines::kMany : Machines::kOne; }
  /// Of the first tier in EdgeNode.spec.models.
  std::string model_key() const { return service.metadata.key().str() + "." + plan.tiers.front().name; }
};

/// One pod of the first tier, or the place of one.
struct PodFinding {
  api::JointEndpoint endpoint;
  Verdict answers;
  std::optional<Verdict> flaw;  // it answers, but not as the spec has it
  bool leaving = false;
  EdgeNodePtr agent;
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

struct FurtherTier {
  api::JointTierStatus status;
  Verdict verdict;
};
std::vector<FurtherTier> find_further(const View& view);
/// Of CloudReady.
Verdict cloud_verdict(const std::vector<FurtherTier>& tiers);

/// Sums of the status, with what nodes and workers tell now.
void add_counts(const View& view, const FirstTier& first, api::JointInferenceServiceStatus& status);
/// Takes away what changes with every request.
void clear_counts(api::JointInferenceServiceStatus& status);

}  // namespace varda::controllers::joint
