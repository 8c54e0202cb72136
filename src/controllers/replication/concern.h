// Whom a change concerns where files are copied from node to node: the nodes of a claim, and the claims of a node. What changes on
// one node makes nobody else's work anew.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/core/node.h"
#include "api/edgeai/dataset.h"
#include "api/edgeai/edge_node.h"
#include "api/edgeai/model.h"
#include "controllers/replication/plan.h"
#include "runtime/informer.h"

namespace varda::controllers {

/// All claims there are.
std::vector<ReplicationClaim> claims_in(const runtime::Caches& caches);
template <api::Group G>
std::vector<ReplicationClaim> claims_in(const api::DatasetOf<G>& dataset);
template <api::Group G>
std::vector<ReplicationClaim> claims_in(const api::ModelOf<G>& model);

/// EdgeNodes that a claim makes work for: who has the files, and who shall have a copy.
std::vector<meta::ObjectKey> nodes_of(const ReplicationClaim& claim, const runtime::Caches& caches);
/// EdgeNodes that share a claim with a node, this one among them; of the node's labels `labels` counts, which may be former ones.
std::vector<meta::ObjectKey> nodes_with(std::string_view node, const std::map<std::string, std::string>& labels,
                                        const runtime::Caches& caches);
/// Its labels now; none where it is gone.
std::map<std::string, std::string> labels_of(std::string_view node, const runtime::Caches& caches);

/// Whether two versions of an object tell others the same: of a Node its labels, of an EdgeNode what it has to give, who reaches it
/// and whether it is revoked, of a Dataset or Model what its user wrote.
bool same_to_others(const api::Node& a, const api::Node& b);
bool same_to_others(const api::EdgeNode& a, const api::EdgeNode& b);
bool same_spec(const meta::ObjectMeta& a, const meta::ObjectMeta& b);

}  // namespace varda::controllers
