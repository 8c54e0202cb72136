// What an InferenceModel needs (plan) and what its status says (observe). Pure functions over a snapshot of the caches.
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
#include "controllers/inferencemodel/options.h"
#include "controllers/inferencemodel/placement.h"
#include "controllers/port_claims.h"

namespace varda::controllers {

using codec::Json;

inline constexpr std::string_view kManagedByLabel = "app.kubernetes.io/managed-by";
inline constexpr std::string_view kModelLabel = "edgeai.io/inference-model";
inline constexpr std::string_view kLayerLabel = "edgeai.io/layer";
inline constexpr std::string_view kVersionLabel =
    "edgeai.io/model-version";  // also an annotation: not every version can be a label

/// What is around one model, as the caches hold it.
struct World {
  NodeList nodes;
  std::vector<std::shared_ptr<const api::InferenceModel>> models;  // others that may want its port of its node
  std::shared_ptr<const api::EdgeNode> edge_node;                  // of the node the model is placed on
  std::vector<std::shared_ptr<const api::Pod>> pods;               // in its namespace, with its kModelLabel
  std::shared_ptr<const api::Service> service;                     // of its name
  std::vector<std::shared_ptr<const api::EndpointSlice>> slices;   // of that service
  std::shared_ptr<const api::Deployment> deployment;               // of its name
  std::vector<PortClaim> claims;       // edge layer: ports that jobs have on the node it is placed on, its own job's too
  std::optional<Problem> certificate;  // why the server has no issued certificate
};

struct Plan {
  enum class Children {
    kConverge,  // to exactly `objects`
    kLeave,     // the spec cannot be followed: what serves goes on
  };
  Placement placement;             // edge layer
  std::optional<Problem> problem;  // why `objects` is not what the user wants
  Children children = Children::kConverge;
  std::vector<Json> objects;
  /// Edge layer: the uid of a pod that has ended for good (evicted, refused by its node, failed) and comes back only as another
  /// one. `objects` are not made beside it: it has to go first, after a pause.
  std::string ended_pod;
  /// Edge layer: the pod that is there stays, and what `objects` has is that one's wish. Outdated: another one would be made now.
  bool keeps_pod = false, outdated_pod = false;
  bool waits_for_job = false;  // its port is a job's: nothing that it watches tells when that ends
  /// Why the API server did not take `objects`, once it was asked (pod security, quotas).
  std::optional<Problem> refused;
};

/// What should exist, and what is wrong with the spec. Cannot fail.
Plan plan(const api::InferenceModel& model, const World& world, const InferenceModelOptions& options);

/// The hosts of a certificate of ours: names and addresses that clients and tiers use.
std::vector<std::string> certificate_hosts(const api::InferenceModel& model, const World& world,
                                           const InferenceModelOptions& options);

/// What to report. `now` is for transition times (RFC 3339).
api::InferenceModelStatus observe(const api::InferenceModel& model, const Plan& plan, const World& world,
                                  const InferenceModelOptions& options, std::string_view now);

/// What the agent of the node the model is placed on has to do; nothing: no files are ours to manage there. `server` is the table's
/// for the framework; null (it has none): as for varda-serve.
std::optional<api::EdgeModel> work_for(const api::InferenceModel& model, const api::EdgeNode& node, const api::Pod* pod,
                                       const ServerEntry* server = nullptr);

/// The pod of an edge model, if it is this model's.
const api::Pod* edge_pod(const api::InferenceModel& model, const std::vector<std::shared_ptr<const api::Pod>>& pods);

/// Reasons of a wait that ends by itself: no Event is made of them.
bool is_progress(std::string_view reason);

}  // namespace varda::controllers
