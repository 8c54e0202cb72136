// Printer columns of an EdgeNode. A column can show a member, but cannot count.
#pragma once

#include "api/edgeai/edge_node.h"

namespace varda::api {

/// Pure. A model is ready if it serves its target, or if it has no server and the target is on
/// disk. A dataset is ready if it was counted. Reports on items that are not in `spec`, or on
/// another object of the same name, do not count.
EdgeSummary summarize(const EdgeNodeSpec& spec, const EdgeNodeStatus& status);

}  // namespace varda::api
