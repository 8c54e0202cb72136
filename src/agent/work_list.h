// The work list, as the agent persists it for its components.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "agent/state_store.h"
#include "api/edgeai/edge_node.h"

namespace varda::agent {

struct WorkList {
  std::string uid;  // of the EdgeNode; generations of a recreated object start over
  std::int64_t generation = 0;
  api::EdgeNodeSpec spec;
};

/// The persisted work list. Nothing if it is missing or unreadable; the latter is logged.
std::optional<WorkList> read_work_list(StateStore& state_store);
Status write_work_list(StateStore& state_store, const WorkList& desired);

/// Whether no operator has assigned anything yet: the node has just created the object. An
/// assignment without work has a higher generation.
bool is_unassigned(const api::EdgeNode& node);

}  // namespace varda::agent
