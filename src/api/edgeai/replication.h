// Replication: the nodes that get a copy of some files, and the state of the copies
// (docs/design/015). Part of Dataset and Model.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "api/kind.h"

namespace varda::api {

template <typename T>
class Type;

struct Replication {
  // Labels of Nodes. Empty: every node that runs an agent.
  std::map<std::string, std::string> node_selector;
  Json unknown;
  static void describe(Type<Replication>& t);
};

struct NodeReplica {
  static constexpr std::string_view kPending = "Pending", kCopying = "Copying",
                                    kCurrent = "Current", kFailed = "Failed",
                                    kUnreachable = "Unreachable";

  std::string node;
  std::string state;
  std::string snapshot;  // of the copy on the node; "": none
  std::string path;      // path of that copy
  std::int64_t bytes_done = 0;
  std::int64_t bytes_total = 0;
  std::string behind_since;  // RFC 3339, by the control plane's clock; "": the copy is current
  std::string reason;        // "" only if the copy is current and came from a node
  std::string message;
  Json unknown;
  static void describe(Type<NodeReplica>& t);
};

struct ReplicationStatus {
  static constexpr std::size_t kNodesMax = 64;

  std::string snapshot;  // the snapshot to copy; "": not known yet
  std::int64_t bytes = 0;
  std::int64_t files = 0;
  std::int64_t wanted = 0;   // nodes that get a copy
  std::int64_t current = 0;  // nodes with the current copy
  std::string reason;        // why copies are missing, if nodes share the cause; or Relayed
  std::string message;
  // At most kNodesMax. Nodes without the current copy come first, then by name.
  std::vector<NodeReplica> nodes;
  Json unknown;
  const NodeReplica* find_node(std::string_view node) const;
  static void describe(Type<ReplicationStatus>& t);
};

}  // namespace varda::api
