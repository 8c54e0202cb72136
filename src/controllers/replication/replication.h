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
#include "codec/json.h"
#include "hosting/node_index.h"
#include "hosting/placement.h"
#include "meta/object.h"
#include "runtime/controller.h"

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
  codec::Json metadata = {};  // members of the object for readers of copies
};
/// The metadata of a claim: names, labels, and `spec`.
codec::Json metadata_of(const meta::Resource& resource, const meta::ObjectMeta& metadata,
                        codec::Json spec);

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
/// claim, outdated or not. A node that reaches no source asks for a relay in its report. Then the
/// node with the files uploads the snapshot, and the registry is the last source. A revoked node gets no work and is no source. If it had the files, the
/// nodes with copies continue among themselves.
ReplicationWork replication_for(std::string_view node, const std::vector<ReplicationClaim>& claims,
                                const ReplicationWorld& world);

/// Progress of the claim. Every node without the current copy has a reason and a message.
/// `before`: the previous status; `now`: RFC 3339, to record since when nodes are outdated.
api::ReplicationStatus observe_replication(const ReplicationClaim& claim,
                                           const ReplicationWorld& world,
                                           const api::ReplicationStatus& before,
                                           std::string_view now);

/// Objects with files (Dataset, Model), by spec.nodeName.
inline constexpr const char* kByNode = "files on node";
template <typename T>
std::vector<std::string> index_by_node(const T& object) {
  return object.spec.node_name.empty() ? std::vector<std::string>{}
                                       : std::vector<std::string>{object.spec.node_name};
}
/// Objects that ask for copies, by the selector of their nodes (hosting::selector_values()).
inline constexpr const char* kByCopies = "copies on nodes";
template <typename T>
std::vector<std::string> index_by_copies(const T& object) {
  if (!object.spec.replication) return {};
  return hosting::selector_values(object.spec.replication->node_selector);
}
/// Declares both indexes of T, and that of nodes.
template <typename T, runtime::Object W>
void add_indexes(runtime::Watches<W>& w) {
  hosting::index_nodes(w);
  w.template indexes<T>(kByNode, index_by_node<T>)
      .template indexes<T>(kByCopies, index_by_copies<T>);
}
/// Objects with files on the node, and those with copies on nodes with these labels. By key.
template <typename T>
std::vector<std::shared_ptr<const T>> near_node(const std::string& node,
                                                const hosting::Labels& labels,
                                                const runtime::Caches& caches) {
  const auto objects = caches.of<T>();
  std::map<meta::ObjectKey, std::shared_ptr<const T>> near;
  for (auto& object : objects.by_index(kByNode, node)) near.emplace(object->metadata.key(), object);
  for (const std::string& value : hosting::values_to_search(labels)) {
    for (auto& object : objects.by_index(kByCopies, value)) {
      if (selects(*object->spec.replication, labels)) near.emplace(object->metadata.key(), object);
    }
  }
  std::vector<std::shared_ptr<const T>> out;
  for (auto& [key, object] : near) out.push_back(std::move(object));
  return out;
}

/// The nodes and EdgeNodes that matter to the claims.
ReplicationWorld world_of(const std::vector<ReplicationClaim>& claims,
                          const runtime::Caches& caches);
/// EdgeNodes with work for the claim: the one with the files, and those that need a copy.
std::vector<meta::ObjectKey> nodes_of(const ReplicationClaim& claim, const runtime::Caches& caches);
/// True if two versions of an object mean the same for other nodes. Compared are a Node's labels,
/// an EdgeNode's offers with their counts, addresses and revocation, and the spec and labels of a
/// Dataset or Model.
bool same_for_other_nodes(const api::Node& a, const api::Node& b);
bool same_for_other_nodes(const api::EdgeNode& a, const api::EdgeNode& b);
bool same_spec(const meta::ObjectMeta& a, const meta::ObjectMeta& b);

}  // namespace varda::controllers::replication
