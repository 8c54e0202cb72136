// Removal of a node: its key (node_key.h), Node, EdgeNode and Lease, for an administrator's client.
#pragma once

#include <string>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "kube/client.h"

namespace varda::gateway {

/// Whether a removal may leave pods without a node and lose the annotation of a revoked node.
enum class RemovalRisk {
  kNone,      // refuses a node with pods, and a revoked node
  kAccepted,  // removes the node anyway
};
struct RemovedNode {
  bool key = false, node = false, edge_node = false, lease = false;  // removed objects
  bool connected = false;         // the agent was connected: it registers the node again
  std::vector<std::string> pods;  // NAMESPACE/NAME: bound to the node and not finished
};
/// Forgets the node's key, then deletes the EdgeNode, the Lease and the Node. A call that fails in
/// between can be repeated. Pods stay. kInvalid: no node name. kNotFound: the cluster knows nothing
/// of the node. kConflict, with kNone only: pods are bound to the node, or its EdgeNode has the
/// annotation edgeai.io/revoked. The removal would lose that annotation.
Result<RemovedNode> remove_node(const Context& ctx, const kube::Client& client,
                                const std::string& node, RemovalRisk risk);

}  // namespace varda::gateway
