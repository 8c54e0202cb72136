// Plans how files get copied between nodes, and reports the progress. Finds the nodes that a change
// affects: a change on one node must not change the work of all others. Pure, and the same for
// every kind with files.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/core/node.h"
#include "api/edgeai/edge_node.h"
#include "api/edgeai/replication.h"
#include "hosting/placement.h"
#include "meta/object.h"
#include "runtime/informer.h"

namespace varda::controllers::replication {

/// The path on a node that a URL means: an absolute path, or a file:/// URL. Empty: the URL means
/// no path.
std::optional<std::string> local_path(const std::string& url);

/// Files of one object that other nodes must copy.
struct ReplicationClaim {
  std::string key;   // as in work lists: RESOURCE.GROUP/NAMESPACE/NAME
  std::string uid;   // of the object
  std::string node;  // the node with the files
  std::string path;  // path of the files there
  api::Replication spec;
};

/// EdgeNodes by name.
using EdgeNodeMap = std::map<std::string, std::shared_ptr<const api::EdgeNode>, std::less<>>;

struct ReplicationWorld {
  hosting::NodeList nodes;
  EdgeNodeMap edge_nodes;
};

/// True if a node with these labels needs a copy.
bool selects(const api::Replication& spec, const std::map<std::string, std::string>& labels);
/// Names of the nodes that need a copy: matching labels, with an agent, not revoked; without the
/// node that has the files.
std::vector<std::string> replica_nodes(const ReplicationClaim& claim,
                                       const ReplicationWorld& world);

struct ReplicationWork {
  std::vector<api::EdgeShare> shares;
  std::vector<api::EdgeReplica> replicas;
};
/// Work of `node` for all claims, sorted by key; at most the first 128 of each kind.
///
/// An outdated node gets up to three nodes with a current copy as sources. The node with the files
/// is the last source. Sources stay as long as they are current, even after the node has caught up.
/// Otherwise each node's progress would change the lists of all others: writes would grow with the
/// square of the number of nodes. For the same reason each node with a copy serves all nodes of the
/// claim, outdated or not. A revoked node gets no work and is no source. If it had the files, the
/// nodes with copies continue among themselves.
ReplicationWork replication_for(std::string_view node, const std::vector<ReplicationClaim>& claims,
                                const ReplicationWorld& world);

/// Progress of the claim. `before`: the previous status; `now`: RFC 3339, to record since when
/// nodes are outdated.
api::ReplicationStatus observe_replication(const ReplicationClaim& claim,
                                           const ReplicationWorld& world,
                                           const api::ReplicationStatus& before,
                                           std::string_view now);

/// EdgeNodes with work for the claim: the one with the files, and those that need a copy.
std::vector<meta::ObjectKey> nodes_of(const ReplicationClaim& claim, const runtime::Caches& caches);
/// The node's current labels; empty if the node is gone.
std::map<std::string, std::string> labels_of(std::string_view node, const runtime::Caches& caches);

/// True if two versions of an object mean the same for other nodes. Compared are a Node's labels,
/// an EdgeNode's offers, addresses and revocation, and the spec of a Dataset or Model.
bool same_to_others(const api::Node& a, const api::Node& b);
bool same_to_others(const api::EdgeNode& a, const api::EdgeNode& b);
bool same_spec(const meta::ObjectMeta& a, const meta::ObjectMeta& b);

}  // namespace varda::controllers::replication
