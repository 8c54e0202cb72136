// The work list as the agent keeps it on its disk, for those who work it off.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "agent/journal.h"
#include "api/edgeai/edge_node.h"

namespace varda::agent {

struct Desired {
  std::string uid;  // of the EdgeNode: one made anew has generations of its own
  std::int64_t generation = 0;
  api::EdgeNodeSpec spec;
};

/// As last kept; nothing if there is none, or if it cannot be read, which is logged.
std::optional<Desired> read_desired(Journal& journal);
Status keep_desired(Journal& journal, const Desired& desired);

/// Nobody has written a spec into it yet: it is the object this node just made, not the wish to hold nothing.
bool says_nothing(const api::EdgeNode& node);

}  // namespace varda::agent
