// Placement of edge models on nodes. Pure; shared by the model's controller and the writer of
// EdgeNode.spec, so that both always agree.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/core/node.h"

namespace varda::hosting {

using NodeList = std::vector<std::shared_ptr<const api::Node>>;

/// The reason why nothing, or nothing new, can be done. `reason` is a condition's.
struct Problem {
  std::string reason;
  std::string message;
  friend bool operator==(const Problem&, const Problem&) = default;
};

struct Placement {
  /// The model's node; empty: none. With a problem it is the present node, where the model may
  /// stay. A vanished Node, or a second match, must not stop a serving model.
  std::string node;
  std::optional<Problem>
      problem;  // NodeNotFound, NodeNameSelectorMismatch, NoNodeMatches, SeveralNodesMatch
};

/// The node that a spec asks for, and the present node.
struct WantedNode {
  const std::string& name;  // "": by the selector
  const std::map<std::string, std::string>& selector;
  const std::string& current;
};
Placement place(const WantedNode& wanted, const NodeList& nodes);
/// Places a model of the edge layer. Its present node is status.node.
Placement place(const api::InferenceModel& model, const NodeList& nodes);

const api::Node* find_node(const NodeList& nodes, std::string_view name);

/// device, edge or cloud: the label kLayerLabel, or without it the role (KubeEdge's nodes have
/// node-role.kubernetes.io/edge).
std::string layer_of(const api::Node& node);

}  // namespace varda::hosting
