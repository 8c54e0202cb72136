#include "api/edgeai/replication.h"

#include "api/describe.h"

namespace varda::api {

const NodeReplica* ReplicationStatus::find_node(std::string_view node) const {
  for (const NodeReplica& one : nodes) {
    if (one.node == node) return &one;
  }
  return nullptr;
}

void Replication::describe(Type<Replication>& t) {
  t.doc("Nodes that get a copy of the files. Nodes copy directly from each other.");
  t.field("nodeSelector", &Replication::node_selector,
          "Labels of the nodes. Empty: every node that runs an agent.")
      .items_max(64)
      .each_length(0, 63);
  t.keep_unknown(&Replication::unknown);
}

void NodeReplica::describe(Type<NodeReplica>& t) {
  using R = NodeReplica;
  t.doc("The copy on one node.");
  t.field("node", &R::node, "Name of the node.").required().length(1, 253);
  t.field("state", &R::state, "State of the copy.")
      .required()
      .one_of({"Pending", "Copying", "Current", "Failed", "Unreachable"});
  t.field("snapshot", &R::snapshot, "Snapshot of the copy on the node.").length(0, 64);
  t.field("path", &R::path, "Path of the copy on the node.").length(0, 4096);
  t.field("bytesDone", &R::bytes_done, "Received bytes, if copying takes long.").format("int64");
  t.field("bytesTotal", &R::bytes_total, "Bytes to receive in all, if copying takes long.")
      .format("int64");
  t.field("behindSince", &R::behind_since, "Time since which the node lacks the current copy.")
      .length(0, 64);
  t.field(
       "reason", &R::reason,
       "Reason why the copy is not current: WaitingForSource, NoSource, WaitingForNode, Copying, "
       "NodeUnreachable, SourceUnreachable, SourceChanged, DiskFull, Refused, NoIdentity, "
       "Relaying, RelayMissing, RelayFull, RelayFailed or RelayTooLarge. Relayed: the copy comes "
       "through the registry.")
      .length(0, 128);
  t.field("message", &R::message, "Human-readable explanation.").length(0, 4096);
  t.keep_unknown(&R::unknown);
}

void ReplicationStatus::describe(Type<ReplicationStatus>& t) {
  using S = ReplicationStatus;
  t.doc("State of the copies.");
  t.field("snapshot", &S::snapshot, "Name of the snapshot to copy.").length(0, 64);
  t.field("bytes", &S::bytes, "Size of all files of the snapshot.").format("int64");
  t.field("files", &S::files, "Number of files in the snapshot.").format("int64");
  t.field("wanted", &S::wanted, "Number of nodes that get a copy.").format("int64").always();
  t.field("current", &S::current, "Number of nodes that have the current copy.")
      .format("int64")
      .always();
  t.field("reason", &S::reason,
          "Reason why copies are missing on every node: PathForbidden, PathNotFound, TooLarge, "
          "ReadFailed, NoNodeSelected, NodeMissing, SourceUnknown, SourceRevoked, "
          "SourceNotListening, SourceUnreachable, WaitingForSource, InvalidSpec, FormatUnknown or "
          "Unsupported. A reason with Relay: copies go through the registry.")
      .length(0, 128);
  t.field("message", &S::message, "Human-readable explanation.").length(0, 4096);
  t.field("nodes", &S::nodes, "At most 64 nodes. Nodes without the current copy come first.")
      .items_max(S::kNodesMax)
      .list_map({"node"});
  t.keep_unknown(&S::unknown);
}

}  // namespace varda::api
