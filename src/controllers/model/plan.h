// What a Model's status says: metrics that jobs wrote stay, and what workers at the edge report is merged into them. Pure, and the
// same for both groups.
//
// A worker's report, EdgeNode.status.workers[].report, may hold
//
//   sequence: 17                                # grows with each report; the node's agent counts, no clock does
//   models: {models.edgeai.io/NS/NAME: {metrics: {accuracy: 0.93}}}
//
// It counts if the node's work list has a worker of that key and uid, if the Model is in that worker's namespace, and if its
// sequence is greater than that of the last report of this worker on this node that was taken over, which status.reporters
// remembers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/edgeai/edge_node.h"
#include "api/edgeai/model.h"
#include "controllers/replication/plan.h"

namespace varda::controllers {

/// Which Model, of either group. Borrows.
struct ModelView {
  const meta::Resource& resource;
  const meta::ObjectMeta& metadata;
};

/// What other nodes shall have of it; nothing: no node shall, or it is no path on a node.
std::optional<ReplicationClaim> claim_of(const ModelView& model, const api::ModelSpec& spec);
/// How far that is; nothing: no node shall have a copy.
std::optional<api::ReplicationStatus> observe_copies(const ModelView& model, const api::ModelSpec& spec,
                                                     const ReplicationWorld& world, const api::ModelMetricsStatus& before,
                                                     std::string_view now);

/// Models that the workers' reports of a node name, if they are of `resource`: keys of existing and other objects. At most 1,024.
std::vector<meta::ObjectKey> reported_models(const api::EdgeNode& node, const meta::Resource& resource);

/// What to report. `before` is the status as it is now, with what anybody may have written since; `now` is for times (RFC 3339).
api::ModelMetricsStatus observe(const ModelView& model, const api::ModelMetricsStatus& before,
                                const std::vector<std::shared_ptr<const api::EdgeNode>>& nodes, std::string_view now);

}  // namespace varda::controllers
