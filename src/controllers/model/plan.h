// Status of a Model: metrics written by jobs stay, and reports of edge workers are merged in. Pure,
// and the same for both groups.
//
// A worker's report, EdgeNode.status.workers[].report, may hold
//
//   sequence: 17     # grows with each report; counted by the node's agent, not by a clock
//   models: {models.edgeai.io/NS/NAME: {metrics: {accuracy: 0.93}}}
//
// A report counts under three conditions. The node's work list has a worker of that key and uid.
// The Model is in that worker's namespace. The sequence is greater than that of the last accepted
// report of this worker on this node, which status.reporters stores.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/edgeai/edge_node.h"
#include "api/edgeai/model.h"
#include "controllers/model/model.h"
#include "hosting/model_archive.h"
#include "hosting/servers.h"

namespace varda::controllers::model {

/// Progress of the copies; empty: no node needs a copy.
std::optional<api::ReplicationStatus> observe_copies(const ModelView& model,
                                                     const api::ModelSpec& spec,
                                                     const replication::ReplicationWorld& world,
                                                     const api::ModelMetricsStatus& before,
                                                     std::string_view now);

/// True for http, https and s3; a path and a file URL only with kDownloadsAndPaths.
bool is_readable(std::string_view url, hosting::ReadableFiles files);

/// True if Varda must read the file at the URL, because an object serves it and its digest is
/// unknown. False for files that need credentials.
template <api::Group G>
bool needs_pin(const api::ModelOf<G>& model, hosting::ReadableFiles files) {
  return api::known_sha256(model.spec, model.status).empty() &&
         model.spec.credential_name.empty() && is_readable(model.spec.url, files);
}

/// Sets status.pinned and the condition Pinned from the answer for a Model that needs it. Absent:
/// the Model does not need it, so an outdated pin goes away. `reader` reads the file: "the
/// operator", "node line7".
void observe_pin(const api::ModelSpec& spec, const std::optional<hosting::FileDigest>& answer,
                 std::string_view now, api::ModelMetricsStatus& status,
                 const std::string& reader = "the operator");

/// True if a node must read the file: a path, without sha256, pin and credentials.
bool needs_node(const hosting::AnyModel& model);
/// The item of EdgeNode.spec.files for the Model.
api::EdgeFile file_of(const hosting::AnyModel& model);
/// The node's answer to the item of this Model in its work list. Absent: the node was not asked.
std::optional<hosting::FileDigest> answer_of(const api::EdgeNode& node,
                                             const hosting::AnyModel& model);

/// Keys of the Models of `resource` that a node's worker reports name; the objects may not exist.
/// At most 1,024.
std::vector<meta::ObjectKey> reported_models(const api::EdgeNode& node,
                                             const meta::Resource& resource);

/// The new status. `before` is the current status, with all later writes of others; `now` is for
/// times (RFC 3339).
api::ModelMetricsStatus observe(const ModelView& model, const api::ModelMetricsStatus& before,
                                const std::vector<std::shared_ptr<const api::EdgeNode>>& nodes,
                                std::string_view now);

}  // namespace varda::controllers::model
