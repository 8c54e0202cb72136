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

/// The surroundings of one model, as cached.
struct World {
  NodeList nodes;
  std::vector<std::shared_ptr<const api::InferenceModel>> models;  // others that may want its port
  std::shared_ptr<const api::EdgeNode> edge_node;                  // of the model's node
  std::vector<std::shared_ptr<const api::Pod>> pods;  // in its namespace, with its kModelLabel
  std::shared_ptr<const api::Service> service;        // of its name
  std::vector<std::shared_ptr<const api::EndpointSlice>> slices;  // of that service
  std::shared_ptr<const api::Deployment> deployment;              // of its name
  std::vector<PortClaim> claims;       // edge layer: ports of jobs on its node, also of its own job
  std::optional<Problem> certificate;  // set if the server has no issued certificate
};

struct Plan {
  enum class Children {
    kConverge,  // to exactly `objects`
    kLeave,     // the spec cannot be followed: present objects stay
  };
  Placement placement;             // edge layer
  std::optional<Problem> problem;  // the reason why `objects` differ from the spec
  Children children = Children::kConverge;
  std::vector<Json> objects;
  /// Edge layer: uid of a pod that ended for good (evicted, refused by its node, failed). Only
  /// another pod can follow it. So it is removed first, after a pause.
  std::string ended_pod;
  /// Edge layer: the present pod stays, and `objects` has its last applied state. Outdated: a pod
  /// made now would differ.
  bool keeps_pod = false, outdated_pod = false;
  bool waits_for_job = false;  // a job has its port, and no watch reports the release
  /// The API server's refusal of `objects`, after the write (pod security, quotas).
  std::optional<Problem> refused;
};

/// Plans the objects that should exist, and finds problems of the spec. Cannot fail.
Plan plan(const api::InferenceModel& model, const World& world,
          const InferenceModelOptions& options);

/// Hosts of the server's certificate: names and addresses that clients and tiers use.
std::vector<std::string> certificate_hosts(const api::InferenceModel& model, const World& world,
                                           const InferenceModelOptions& options);

/// The status to report. `now` is for transition times (RFC 3339).
api::InferenceModelStatus observe(const api::InferenceModel& model, const Plan& plan,
                                  const World& world, const InferenceModelOptions& options,
                                  std::string_view now);

/// The work of the agent on the model's node; nothing: Varda manages no files there. `server` is
/// the table's entry for the framework; null (no entry): as for varda-serve.
std::optional<api::EdgeModel> work_for(const api::InferenceModel& model, const api::EdgeNode& node,
                                       const api::Pod* pod, const ServerEntry* server = nullptr);

/// The edge model's own pod; null: none.
const api::Pod* edge_pod(const api::InferenceModel& model,
                         const std::vector<std::shared_ptr<const api::Pod>>& pods);

/// True: a wait with this reason ends by itself. It causes no Event.
bool is_progress(std::string_view reason);

}  // namespace varda::controllers
