// Which versions of a model a node holds on its disk. Pure; shared by the kinds that put models on nodes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/edgeai/edge_node.h"

namespace varda::controllers {

/// All of a manifest, as a node is told of them.
std::vector<api::EdgeModelVersion> archives_of(const api::InferenceModel& model);

/// Of `archives`, in their order, what `node` holds of the model `key` (as in EdgeNode.spec.models): the target, what is exposed or
/// serves now, and one more that is there already, for a way back without the network: the last one among them. What a node holds
/// it does not evict, so the way back is let go of while something else has no room: the node then removes it if that helps, and
/// keeps it if it does not.
std::vector<api::EdgeModelVersion> versions_to_hold(std::string_view key, const std::vector<api::EdgeModelVersion>& archives,
                                                    const std::string& target, const api::EdgeNode& node);

}  // namespace varda::controllers
