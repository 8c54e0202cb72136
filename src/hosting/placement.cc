#include "hosting/placement.h"

#include <algorithm>

#include "base/text.h"
#include "hosting/labels.h"
#include "meta/selector.h"

namespace varda::hosting {

namespace {

std::string print(const std::map<std::string, std::string>& labels) {
  return join(labels, ",", [](const auto& label) { return label.first + "=" + label.second; });
}

}  // namespace

const api::Node* find_node(const NodeList& nodes, std::string_view name) {
  for (const auto& node : nodes) {
    if (node->metadata.name == name) return node.get();
  }
  return nullptr;
}

std::string layer_of(const api::Node& node) {
  const auto& labels = node.metadata.labels;
  if (const auto layer = labels.find(std::string(kLayerLabel)); layer != labels.end())
    return layer->second;
  return labels.contains("node-role.kubernetes.io/edge") ? "edge" : "cloud";
}

Placement place(const api::InferenceModel& model, const NodeList& nodes) {
  return place({model.spec.node_name, model.spec.node_selector, model.status.node}, nodes);
}

Placement place(const WantedNode& asked, const NodeList& nodes) {
  const std::string& current = asked.current;
  const auto selector = meta::LabelSelector::equals(asked.selector);

  if (!asked.name.empty()) {
    const api::Node* node = find_node(nodes, asked.name);
    if (node == nullptr) {
      return {current == asked.name ? current : "",
              Problem{"NodeNotFound", "node " + asked.name + " does not exist"}};
    }
    if (!selector.matches(node->metadata.labels)) {
      return {"", Problem{"NodeNameSelectorMismatch",
                          "node " + asked.name + " does not match the nodeSelector " +
                              print(asked.selector) + ": change one of them"}};
    }
    return {asked.name, {}};
  }

  std::vector<std::string> matches;
  for (const auto& node : nodes) {
    if (selector.matches(node->metadata.labels)) matches.push_back(node->metadata.name);
  }
  if (matches.size() == 1) return {matches.front(), {}};
  const std::string wanted = print(asked.selector);
  if (matches.empty()) {
    const bool vanished = !current.empty() && find_node(nodes, current) == nullptr;
    return {vanished ? current : "",
            Problem{"NoNodeMatches", "no node matches the nodeSelector " + wanted}};
  }
  std::sort(matches.begin(), matches.end());
  const bool among = std::binary_search(matches.begin(), matches.end(), current);
  const std::size_t count = matches.size();
  if (count > 5) matches.resize(5);
  std::string names = join(matches);
  if (count > 5) names += ", ...";
  return {among ? current : "",
          Problem{"SeveralNodesMatch",
                  std::to_string(count) + " nodes match the nodeSelector " + wanted + " (" + names +
                      "): set nodeName, or narrow the nodeSelector to one node"}};
}

}  // namespace varda::hosting
