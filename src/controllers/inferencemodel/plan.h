// Plans the objects of an InferenceModel (plan), and makes its status (observe). Pure functions
// over a snapshot of the caches.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/core/deployment.h"
#include "api/core/endpoint_slice.h"
#include "api/core/node.h"
#include "api/core/pod.h"
#include "api/core/service.h"
#include "api/edgeai/edge_node.h"
#include "controllers/inferencemodel/inferencemodel.h"
#include "hosting/model_archive.h"
#include "hosting/placement.h"
#include "hosting/port_claims.h"
#include "hosting/servers.h"

namespace varda::controllers::inferencemodel {

using codec::Json;

/// The surroundings of one model, as cached.
struct World {
  hosting::NodeList nodes;
  std::vector<std::shared_ptr<const api::InferenceModel>> models;  // others that may want its port
  std::shared_ptr<const api::EdgeNode> edge_node;                  // of the model's node
  std::vector<std::shared_ptr<const api::Pod>> pods;  // in its namespace, with its kModelLabel
  std::shared_ptr<const api::Service> service;        // of its name
  std::vector<std::shared_ptr<const api::EndpointSlice>> slices;  // of that service
  std::shared_ptr<const api::Deployment> deployment;              // of its name
  hosting::AnyModels
      referred;  // of its namespace: with the name in modelRef, or all for a selector
  std::vector<hosting::PortClaim>
      claims;  // edge layer: ports of jobs on its node, also of its own job
  std::optional<hosting::Problem> certificate;  // set if the server has no issued certificate
  std::shared_ptr<const hosting::ModelKeys> keys = nullptr;  // null: signatures are not checked
};

struct Plan {
  enum class Children {
    kConverge,  // to exactly `objects`
    kLeave,     // the spec cannot be followed: present objects stay
  };
  /// With a modelRef: the model with the chosen archives as its manifest, whose status has the
  /// choice. All other members are about this model. Nothing was ever chosen: empty.
  std::optional<api::InferenceModel> resolved;
  /// Set if modelRef leads to no Model that can be served, and `resolved` has the last choice.
  std::optional<hosting::Problem> unresolved;
  hosting::Placement placement;             // edge layer
  std::optional<hosting::Problem> problem;  // the reason why `objects` differ from the spec
  /// SignatureRefused: the target version is not fetched. A version that serves keeps serving.
  std::optional<hosting::Problem> refused_target;
  Children children = Children::kConverge;
  std::vector<Json> objects;
  /// Edge layer: uid of a pod that ended for good (evicted, refused by its node, failed). Only
  /// another pod can follow it. So it is removed first, after a pause.
  std::string ended_pod;
  /// Edge layer: the present pod stays, and `objects` has its last applied state. Outdated: a pod
  /// made now would differ.
  bool pod_unchanged = false, outdated_pod = false;
  bool waits_for_job = false;  // a job has its port, and no watch reports the release
  /// The API server's refusal of `objects`, after the write (pod security, quotas).
  std::optional<hosting::Problem> refused;
};

/// Plans the objects that should exist, and finds problems of the spec. Cannot fail.
Plan plan(const api::InferenceModel& model, const World& world, const hosting::Options& options);

/// True if the server can load a second version: varda-serve. `traits` as of server_traits();
/// `server` null: as for varda-serve.
bool takes_trials(const api::EdgeModel& traits, const hosting::ServerEntry* server);

/// Hosts of the server's certificate: names and addresses that clients and tiers use.
std::vector<std::string> certificate_hosts(const api::InferenceModel& model, const World& world,
                                           const hosting::Options& options);

/// The status to report. `now` is for transition times (RFC 3339).
api::InferenceModelStatus observe(const api::InferenceModel& model, const Plan& plan,
                                  const World& world, const hosting::Options& options,
                                  std::string_view now);

}  // namespace varda::controllers::inferencemodel
