// What columns say of an EdgeNode: a printer column shows a member, it does not count.
#pragma once

#include "api/edgeai/edge_node.h"

namespace varda::api {

/// Pure. A model is ready that serves its target, or where nothing shall serve yet has it on disk; a dataset that was counted.
/// What `status` says of things that are not in `spec`, or of another object under the name, does not count.
EdgeSummary summarize(const EdgeNodeSpec& spec, const EdgeNodeStatus& status);

}  // namespace varda::api
