// The node's work list: EdgeNode.spec, with the identity of the version that the agent applies.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "agent/core/state_store.h"
#include "api/edgeai/edge_node.h"

namespace varda::agent::core {

/// Identifies one version of the work list.
struct ListId {
  std::string uid;              // of the EdgeNode; generations of a recreated object start over
  std::int64_t generation = 0;  // 0: no work list yet
  friend bool operator==(const ListId&, const ListId&) = default;
};

struct WorkList {
  ListId id;
  api::EdgeNodeSpec spec;
};

/// Persists the work list. No other code reads or writes it on disk. Not thread-safe.
class WorkListStore {
 public:
  /// `state_store` outlives it.
  explicit WorkListStore(StateStore& state_store) : state_store_(state_store) {}

  /// The persisted work list. Nothing if it is missing or unreadable; the latter is logged.
  std::optional<WorkList> load();

  /// Persists the work list of `node`, and returns it for the components. Persisting comes first,
  /// so after a crash load() returns a list that is as new as any component's state.
  ///
  /// Nothing: the list is the last one again, or the operator has assigned
  /// nothing yet. In the second case the node just created the object, and
  /// keeps an earlier list. An assignment without work has a higher generation.
  ///
  /// A list that the disk refuses is returned too, and the error is logged. The
  /// next call tries the disk again.
  std::optional<WorkList> accept(const api::EdgeNode& node);

 private:
  StateStore& state_store_;
  codec::Json last_;  // the list that load() or accept() returned last; null: none
  bool persisted_ = false;
};

}  // namespace varda::agent::core
