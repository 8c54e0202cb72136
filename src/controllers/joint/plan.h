// Plans a JointInferenceService: its objects (plan), the work of nodes (work_for), and its status
// (observe). Pure functions over a snapshot of the caches. docs/design/017 is the contract.
//
// All forms of the spec share this code. The first tier is pods at the edge, with our server or the
// user's worker. Each further tier is an InferenceModel, made by the service or present before, or
// the user's own Deployment and Service.
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
#include "api/sedna/joint_inference_service.h"
#include "controllers/joint/tier.h"
#include "controllers/workers/workers.h"
#include "hosting/model_archive.h"
#include "hosting/node_work.h"
#include "hosting/placement.h"
#include "hosting/port_claims.h"
#include "hosting/servers.h"

namespace varda::controllers::joint {

using codec::Json;

/// The surroundings of one service, as cached.
struct JointWorld {
  hosting::NodeList nodes;  // where tiers may be, and those that forward node ports
  std::function<workers::EdgeNodePtr(const std::string& node)> edge_node;
  /// Objects in its namespace, by name: those that tiers refer to, or with the name of a child.
  std::map<std::string, hosting::AnyModels> models;
  std::map<std::string, std::shared_ptr<const api::InferenceModel>> inference_models;
  /// InferenceModels that the service controls, under any name.
  std::vector<std::shared_ptr<const api::InferenceModel>> children;
  std::vector<workers::PodPtr> pods;                              // of the service
  std::shared_ptr<const api::Deployment> deployment;              // with the cloud worker's name
  std::shared_ptr<const api::Service> service;                    // with the same name
  std::vector<std::shared_ptr<const api::EndpointSlice>> slices;  // of that service
  std::vector<hosting::PortClaim> claims;                         // of others on its nodes
  bool autoscalers_served = false;                           // the API server has autoscaling/v2
  std::shared_ptr<const hosting::ModelKeys> keys = nullptr;  // null: signatures are not checked
};

/// The plan of one further tier.
struct TierPlan {
  std::optional<hosting::Problem> problem;  // the reason why the tier cannot be as the spec wants
  std::string inference_model;  // serves the tier; "": the user's own worker, or nothing
  bool owned = false;           // it is a present child
};

struct JointPlan {
  enum class Children {
    kConverge,  // to exactly `objects`
    kLeave,     // the spec cannot be followed: present objects stay
  };
  Children children = Children::kConverge;
  std::optional<hosting::Problem> problem;  // of the spec as a whole
  std::vector<Json> objects;
  std::vector<Tier> tiers;    // borrows from the service
  workers::WorkerPlan first;  // pods of the first tier
  std::optional<hosting::Problem> first_problem;
  std::int64_t port = 0;                        // of our server; 0: unknown, or the user's worker
  std::vector<TierPlan> further;                // one for each tier but the first
  std::optional<workers::WorkerPlan> cloud;     // of the user's cloud worker
  std::vector<hosting::PortClaim> claims;       // node ports that its pods and edge children want
  bool autoscaled = false;                      // the spec has an `hpa`
  std::optional<hosting::Problem> autoscaling;  // the reason why `hpa` has no effect
  /// The API server's refusal of `objects`, after the write.
  std::optional<hosting::Problem> refused;

  bool manages_first_tier() const { return !tiers.empty() && !tiers.front().has_template(); }
};

/// Plans the objects that should exist, and finds problems of the spec. Cannot fail.
JointPlan plan(const api::JointInferenceService& service, const JointWorld& world,
               const hosting::Options& options);

/// Hosts of the service's certificate: addresses of the first tier, and of loopback.
std::vector<std::string> certificate_hosts(const JointPlan& plan, const JointWorld& world,
                                           const hosting::Options& options);

/// The work of the agent of `node`; nothing: no pod of the service belongs there. Only the parts of
/// `world` for the first tier matter. `world.nodes` needs this node and those that joined before it
/// (joined_before()).
std::optional<hosting::NodeWork> work_for(const api::JointInferenceService& service,
                                          const api::EdgeNode& node, const JointWorld& world,
                                          const hosting::Options& options);

/// The status to report. `now` is for times (RFC 3339). Counts change with every request. They are
/// added kCountsPeriod after the last change of the status at the earliest.
struct JointObservation {
  api::JointInferenceServiceStatus status;
  std::optional<Duration> recheck_in;  // time until counts can be added
};
inline constexpr std::chrono::seconds kCountsPeriod{10};
JointObservation observe(const api::JointInferenceService& service, const JointPlan& plan,
                         const JointWorld& world, const hosting::Options& options, WallTime now);

/// The first tier's worker without its model, addresses and port.
workers::Worker placed_worker(const Tier& tier);
/// The largest number of nodes that a first tier without a nodeName has.
std::size_t nodes_max(const Tier& tier);
/// The port of our server in present pods of the worker, else in the last endpoints; 0: unknown.
std::int64_t known_port(const api::JointInferenceService& service, const workers::Worker& worker,
                        const std::vector<workers::PodPtr>& pods);
workers::Job job_of(const api::JointInferenceService& service);

/// The nodes that tiers name, sorted.
std::vector<std::string> named_nodes(const std::vector<Tier>& tiers);
/// True: the tier is the user's own cloud worker, and clients reach it at a node's address.
bool has_node_port(const api::JointInferenceService& service, const Tier& tier);

/// Range of node ports that a service chooses itself.
inline constexpr std::int64_t kJointPortMin = 18080, kJointPortMax = 18999;

}  // namespace varda::controllers::joint
