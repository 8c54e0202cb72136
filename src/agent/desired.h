// The work list, as the agent persists it for its components.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "agent/journal.h"
#include "api/edgeai/edge_node.h"

namespace varda::agent {

struct Desired {
  std::string uid;  // of the EdgeNode; generations of a recreated object start over
  std::int64_t generation = 0;
  api::EdgeNodeSpec spec;
};

/// The persisted work list. Nothing if it is missing or unreadable; the latter is logged.
std::optional<Desired> read_desired(Journal& journal);
Status keep_desired(Journal& journal, const Desired& desired);

/// Whether no operator has assigned anything yet: the node has just created the object. An
/// assignment without work has a higher generation.
bool says_nothing(const api::EdgeNode& node);

}  // namespace varda::agent
