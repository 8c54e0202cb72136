// What a JointInferenceService needs (plan), what its nodes are told (work_for), and what its status says (observe). Pure functions
// over a snapshot of the caches. docs/design/017 is the contract.
//
// One machine for all ways of writing a service: the first tier are pods at the edge, with our server or with the user's worker;
// every further tier is an InferenceModel, ours or one that is there already, or the user's own Deployment and Service.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/core/deployment.h"
#include "api/core/endpoint_slice.h"
#include "api/core/service.h"
#include "api/edgeai/edge_node.h"
#include "api/edgeai/model.h"
#include "api/sedna/joint_inference_service.h"
#include "controllers/edgenode/job_work.h"
#include "controllers/inferencemodel/options.h"
#include "controllers/joint/tier.h"
#include "controllers/workers/workers.h"

namespace varda::controllers {

/// What is around one service.
struct JointWorld {
  NodeList nodes;  // those its tiers name; where it selects nodes, or a Service's node port has to be told, all there are
  std::function<EdgeNodePtr(const std::string& node)> edge_node;
  /// In its namespace, by name: what its tiers refer to, and what its children are called.
  std::map<std::string, std::shared_ptr<const api::SednaModel>> models;
  std::map<std::string, std::shared_ptr<const api::InferenceModel>> inference_models;
  /// InferenceModels that it controls, whatever they are called.
  std::vector<std::shared_ptr<const api::InferenceModel>> children;
  std::vector<PodPtr> pods;                                       // of its job
  std::shared_ptr<const api::Deployment> deployment;              // of the cloud worker's name
  std::shared_ptr<const api::Service> service;                    // as above
  std::vector<std::shared_ptr<const api::EndpointSlice>> slices;  // of that service
  std::vector<PortClaim> claims;                                  // of others on its nodes
  bool autoscalers_served = false;                                // the API server has autoscaling/v2
};

/// What becomes of one further tier.
struct TierPlan {
  std::optional<Problem> problem;  // why there is nothing that could be asked
  std::string inference_model;     // who serves it; "": the user's own worker, or nobody
  bool owned = false;              // that is a child
};

struct JointPlan {
  enum class Children {
    kConverge,  // to exactly `objects`
    kLeave,     // the spec cannot be followed: what serves goes on
  };
  Children children = Children::kConverge;
  std::optional<Problem> problem;  // of the spec as a whole
  std::vector<Json> objects;
  std::vector<Tier> tiers;  // borrows from the service
  WorkerPlan first;         // pods of the first tier
  std::optional<Problem> first_problem;
  std::int64_t port = 0;               // of our server there; 0: none is known, or it is the user's
  std::vector<TierPlan> further;       // one for each tier but the first
  std::optional<WorkerPlan> cloud;     // of the user's cloud worker
  std::vector<PortClaim> claims;       // what its pods, and children at the edge, want of nodes
  bool autoscaled = false;             // the spec has an `hpa`
  std::optional<Problem> autoscaling;  // why it is not followed
  /// Why the API server did not take `objects`, once it was asked.
  std::optional<Problem> refused;

  bool ours_first() const { return !tiers.empty() && !tiers.front().has_template(); }
};

/// What should exist, and what is wrong with the spec. Cannot fail.
JointPlan plan(const api::JointInferenceService& service, const JointWorld& world, const InferenceModelOptions& options);

/// The hosts of a certificate of ours: addresses of the first tier.
std::vector<std::string> certificate_hosts(const JointPlan& plan, const JointWorld& world, const InferenceModelOptions& options);

/// What the agent of `node` has to do; nothing: no pod of the service belongs there. Of the world only what concerns the first tier
/// counts, and of its nodes this one and those that joined before it (joined_before()).
std::optional<NodeWork> work_for(const api::JointInferenceService& service, const api::EdgeNode& node, const JointWorld& world,
                                 const InferenceModelOptions& options);

/// What to report. `now` is for times (RFC 3339). Counts, which change with every request, are taken up kCountsPeriod after the
/// last change of the status at the earliest.
struct JointObservation {
  api::JointInferenceServiceStatus status;
  std::optional<Duration> look_again;  // after so long there are counts to take up
};
inline constexpr std::chrono::seconds kCountsPeriod{10};
JointObservation observe(const api::JointInferenceService& service, const JointPlan& plan, const JointWorld& world,
                         const InferenceModelOptions& options, WallTime now);

/// Nodes that concern a service: those its tiers name.
std::vector<std::string> named_nodes(const std::vector<Tier>& tiers);
/// Any node may concern it: it selects some, or tells an address of one.
bool concerns_every_node(const std::vector<Tier>& tiers);

/// Ports of nodes that a service chooses itself.
inline constexpr std::int64_t kJointPortMin = 18080, kJointPortMax = 18999;

}  // namespace varda::controllers
