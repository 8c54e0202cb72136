// Layer of a node: its place, as the administrator chose when the node was admitted. The join token
// carries it, then the Secret with the node's key (node_key.h). A node never chooses its layer:
// pods for the cloud would follow the choice.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "codec/json.h"

namespace varda::gateway {

using codec::Json;

enum class Layer { kEdge, kDevice, kCloud };

std::string_view to_string(Layer layer);  // edge, device, cloud
/// Nothing: `text` names no layer.
std::optional<Layer> parse_layer(std::string_view text);

/// Nodes of the layers edge and device have this role as a label. The role is also the key of their
/// taint, with the effect NoSchedule.
inline constexpr std::string_view kEdgeRole = "node-role.kubernetes.io/edge";
inline constexpr std::string_view kLayerLabel = "edgeai.io/layer";

/// The Node that a node of `layer` wants to create, with the labels and the taint of the layer.
/// kForbidden: a label of `node` contradicts the layer.
Result<Json> placed(Json node, Layer layer);

/// The merge patch that gives a present Node the labels and the taint of `layer`. Nothing: the Node
/// has them. An administrator may turn an edge node into a device and back; other labels and taints
/// stay.
std::optional<Json> placement_patch(const Json& node, Layer layer);

}  // namespace varda::gateway
