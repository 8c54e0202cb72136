// What nodes do so that files get from one to others, and what is told of it. Pure, and the same for every kind that has files.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/edgeai/edge_node.h"
#include "api/edgeai/replication.h"
#include "controllers/inferencemodel/placement.h"

namespace varda::controllers {

/// The path on a node that a URL means: an absolute path, or a file:/// URL. Nothing: it means none.
std::optional<std::string> local_path(const std::string& url);

/// Files of one object that others shall have.
struct ReplicationClaim {
  std::string key;   // as in work lists: RESOURCE.GROUP/NAMESPACE/NAME
  std::string uid;   // of the object
  std::string node;  // who has them
  std::string path;  // where
  api::Replication spec;
};

/// By name.
using EdgeNodeMap = std::map<std::string, std::shared_ptr<const api::EdgeNode>, std::less<>>;

struct ReplicationWorld {
  NodeList nodes;
  EdgeNodeMap edge_nodes;
};

/// Whether a node with these labels shall have a copy.
bool selects(const api::Replication& spec, const std::map<std::string, std::string>& labels);
/// Who shall have a copy, by name: Nodes with the labels that run an agent and are not revoked, but for the one that has the files.
std::vector<std::string> replica_nodes(const ReplicationClaim& claim, const ReplicationWorld& world);

struct ReplicationWork {
  std::vector<api::EdgeShare> shares;
  std::vector<api::EdgeReplica> replicas;
};
/// What `node` has to do for all claims together, in the order of keys; at most 128 of each, the first ones.
///
/// A node that is behind is given up to three nodes that have what it shall have, and the one with the files last. Those it was
/// given before stay as long as they are right, and also when it is behind no more: every word of one node that made another list
/// for each of the others would be as many writes as there are nodes, squared. For the same reason whoever has a copy shares it
/// with all that shall have one, be they behind or not. A node that is revoked has nothing to do, and nobody is to ask it: when it
/// had the files, those with a copy go on with what there is.
ReplicationWork replication_for(std::string_view node, const std::vector<ReplicationClaim>& claims, const ReplicationWorld& world);

/// How far it is. `before`: what the status said; `now`: RFC 3339, for how long nodes are behind.
api::ReplicationStatus observe_replication(const ReplicationClaim& claim, const ReplicationWorld& world,
                                           const api::ReplicationStatus& before, std::string_view now);

}  // namespace varda::controllers
