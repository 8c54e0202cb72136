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
  t.doc("Which other nodes shall have a copy of the files. Copies go from node to node.");
  t.field("nodeSelector", &Replication::node_selector, "Labels of the nodes. Empty: every node that runs an agent.")
      .items_max(64)
      .each_length(0, 63);
  t.keep_unknown(&Replication::unknown);
}

void NodeReplica::describe(Type<NodeReplica>& t) {
  using R = NodeReplica;
  t.doc("The copy of one node.");
  t.field("node", &R::node, "Name of the node.").required().length(1, 253);
  t.field("state", &R::state, "How far it is.").required().one_of({"Pending", "Copying", "Current", "Failed", "Unreachable"});
  t.field("snapshot", &R::snapshot, "Name of the copy that is there.").length(0, 64);
  t.field("path", &R::path, "Where that copy is on the node.").length(0, 4096);
  t.field("bytesDone", &R::bytes_done, "Of a copy that takes long: bytes that came.").format("int64");
  t.field("bytesTotal", &R::bytes_total, "Of such a copy: bytes that must come.").format("int64");
  t.field("behindSince", &R::behind_since, "Since when the node has not had what it shall have.").length(0, 64);
  t.field("reason", &R::reason, "Why not.").length(0, 128);
  t.field("message", &R::message, "Why not, for people.").length(0, 4096);
  t.keep_unknown(&R::unknown);
}

void ReplicationStatus::describe(Type<ReplicationStatus>& t) {
  using S = ReplicationStatus;
  t.doc("How far the copies are.");
  t.field("snapshot", &S::snapshot, "Name of what there is to have.").length(0, 64);
  t.field("bytes", &S::bytes, "Size of all its files.").format("int64");
  t.field("files", &S::files, "How many files it has.").format("int64");
  t.field("wanted", &S::wanted, "How many nodes shall have a copy.").format("int64").always();
  t.field("current", &S::current, "How many of them have it.").format("int64").always();
  t.field("reason", &S::reason, "Why there are no copies: PathForbidden, PathNotFound, TooLarge, ReadFailed, NoNodeSelected, NodeMissing or Unsupported.").length(0, 128);
  t.field("message", &S::message, "Why there are no copies, for people.").length(0, 4096);
  t.field("nodes", &S::nodes, "The nodes, those that are not current first; 64 at most.")
      .items_max(S::kNodesMax)
      .list_map({"node"});
  t.keep_unknown(&S::unknown);
}

}  // namespace varda::api
