// On which node an edge model belongs. Pure; shared by the model's controller and by the one that writes EdgeNode.spec, so that
// both always agree.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/core/node.h"

namespace varda::controllers {

using NodeList = std::vector<std::shared_ptr<const api::Node>>;

/// Why nothing, or nothing new, can be done. `reason` is a condition's.
struct Problem {
  std::string reason;
  std::string message;
  friend bool operator==(const Problem&, const Problem&) = default;
};

struct Placement {
  /// Where the model belongs; empty: nowhere. With a problem it is the node the model is on already and may stay on: a node object
  /// that vanished, or a second one that matches, stops nothing that serves.
  std::string node;
  std::optional<Problem> problem;  // NodeNotFound, NodeNameSelectorMismatch, NoNodeMatches, SeveralNodesMatch
};

/// Of a model in the edge layer. What it is on now is status.node.
Placement place(const api::InferenceModel& model, const NodeList& nodes);

const api::Node* find_node(const NodeList& nodes, std::string_view name);

/// device, edge or cloud: by its label kLayerLabel, and without one by its role (KubeEdge's nodes have
/// node-role.kubernetes.io/edge).
std::string layer_of(const api::Node& node);

}  // namespace varda::controllers
