// The difference of two versions of an EdgeNode, as it matters to objects with pods on the node. So
// a report about one model affects one object, not all objects of the node. Pure.
#pragma once

#include <set>
#include <string>

#include "api/edgeai/edge_node.h"

namespace varda::hosting {

struct AgentChange {
  bool of_node = false;           // affects all objects with pods on the node
  std::set<std::string> reports;  // keys of models and uids of jobs with another report or work
};
AgentChange change_of(const api::EdgeNode& before, const api::EdgeNode& now);

}  // namespace varda::hosting
