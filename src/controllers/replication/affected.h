// Finds the objects that a change affects, where files are copied between nodes: the nodes of a
// claim, and the claims of a node. A change on one node must not change the work of all others.
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

/// All claims in the caches.
std::vector<ReplicationClaim> claims_in(const runtime::Caches& caches);
template <api::Group G>
std::vector<ReplicationClaim> claims_in(const api::DatasetOf<G>& dataset);
template <api::Group G>
std::vector<ReplicationClaim> claims_in(const api::ModelOf<G>& model);

/// EdgeNodes with work for the claim: the one with the files, and those that need a copy.
std::vector<meta::ObjectKey> nodes_of(const ReplicationClaim& claim, const runtime::Caches& caches);
/// EdgeNodes that share a claim with a node, including that node. `labels` are the node's labels,
/// which may be former ones.
std::vector<meta::ObjectKey> nodes_with(std::string_view node,
                                        const std::map<std::string, std::string>& labels,
                                        const runtime::Caches& caches);
/// The node's current labels; empty if the node is gone.
std::map<std::string, std::string> labels_of(std::string_view node, const runtime::Caches& caches);

/// True if two versions of an object mean the same for other nodes. Compared are a Node's labels,
/// an EdgeNode's offers, addresses and revocation, and the spec of a Dataset or Model.
bool same_to_others(const api::Node& a, const api::Node& b);
bool same_to_others(const api::EdgeNode& a, const api::EdgeNode& b);
bool same_spec(const meta::ObjectMeta& a, const meta::ObjectMeta& b);

}  // namespace varda::controllers
