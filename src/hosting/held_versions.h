// Versions of a model that a node holds on its disk. Pure; shared by the kinds that put models on
// nodes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/edgeai/edge_node.h"
#include "hosting/model_keys.h"

namespace varda::hosting {

/// The versions of a manifest that no key list refuses, in the form of a work list. `keys` null:
/// signatures are not checked.
std::vector<api::EdgeModelVersion> archives_of(const api::InferenceModel& model,
                                               const ModelKeys* keys);

/// Selects from `archives`, in their order, the versions that `node` holds of model `key` (as in
/// EdgeNode.spec.models). These are the target, the version on trial ("": none), the exposed
/// version and the serving version. One
/// more version that is present, the last of them, allows a rollback without the network. A node
/// never evicts a held version. So the version for a rollback is left out while another version has
/// no room. The node then removes it if that helps, and keeps it otherwise.
std::vector<api::EdgeModelVersion> versions_to_hold(
    std::string_view key, const std::vector<api::EdgeModelVersion>& archives,
    const std::string& target, const api::EdgeNode& node, const std::string& trial = "");

}  // namespace varda::hosting
