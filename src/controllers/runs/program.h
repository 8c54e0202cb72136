// Our programs as workers of runs. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/core/pod.h"
#include "api/edgeai/edge_node.h"
#include "hosting/placement.h"

namespace varda::controllers::runs {

/// The container of one of our programs. It may read the worker's token, and write to the worker's
/// directory.
api::Container program_container(std::string name, std::string image, std::vector<std::string> args,
                                 const api::EdgeNode& agent);

/// The reason why the node can have no worker: AgentMissing, AgentOutdated. `agent` may be null.
std::optional<hosting::Problem> agent_problem(const api::EdgeNode* agent, const std::string& node);

}  // namespace varda::controllers::runs
