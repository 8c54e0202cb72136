// Replication: which nodes shall have a copy of some files, and how far they are (docs/design/015). A part of Dataset and Model.
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
  std::map<std::string, std::string> node_selector;  // labels of Nodes; empty: every node that runs an agent
  Json unknown;
  static void describe(Type<Replication>& t);
};

struct NodeReplica {
  static constexpr std::string_view kPending = "Pending", kCopying = "Copying", kCurrent = "Current", kFailed = "Failed",
                                    kUnreachable = "Unreachable";

  std::string node;
  std::string state;
  std::string snapshot;  // of the copy that is there; "" none
  std::string path;      // of it
  std::int64_t bytes_done = 0;
  std::int64_t bytes_total = 0;
  std::string behind_since;  // RFC 3339, of the control plane's clock; "" it is what it should be
  std::string reason;
  std::string message;
  Json unknown;
  static void describe(Type<NodeReplica>& t);
};

struct ReplicationStatus {
  static constexpr std::size_t kNodesMax = 64;

  std::string snapshot;  // what there is to have; "" not known yet
  std::int64_t bytes = 0;
  std::int64_t files = 0;
  std::int64_t wanted = 0;   // nodes that shall have a copy
  std::int64_t current = 0;  // of these, have it
  std::string reason;        // why there is nothing to have: as of EdgeNode.status.shares
  std::string message;
  std::vector<NodeReplica> nodes;  // the first by name, those that are not current before the others
  Json unknown;
  const NodeReplica* find_node(std::string_view node) const;
  static void describe(Type<ReplicationStatus>& t);
};

}  // namespace varda::api
