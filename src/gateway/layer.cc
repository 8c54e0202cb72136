#include "gateway/layer.h"

#include <algorithm>
#include <string>
#include <utility>

namespace varda::gateway {
namespace {

constexpr std::string_view kNoSchedule = "NoSchedule";

bool is_edge_taint(const Json& taint) {
  return taint["key"].as_string() == kEdgeRole && taint["effect"].as_string() == kNoSchedule;
}

Json edge_taint() { return Json::object({{"key", kEdgeRole}, {"effect", kNoSchedule}}); }

Error contradiction(std::string_view label, Layer layer) {
  return Error(Code::kForbidden, "metadata.labels." + std::string(label) +
                                     ": the node was admitted to the layer " +
                                     std::string(to_string(layer)) +
                                     " (`varda join-token --node NAME --layer LAYER`)");
}

}  // namespace

std::string_view to_string(Layer layer) {
  switch (layer) {
    case Layer::kEdge:
      return "edge";
    case Layer::kDevice:
      return "device";
    case Layer::kCloud:
      return "cloud";
  }
  return "edge";
}

std::optional<Layer> parse_layer(std::string_view text) {
  for (const Layer layer : {Layer::kEdge, Layer::kDevice, Layer::kCloud}) {
    if (text == to_string(layer)) return layer;
  }
  return std::nullopt;
}

Result<Json> placed(Json node, Layer layer) {
  const Json& existing_labels = std::as_const(node).at("metadata/labels");
  if (const Json* const existing_layer = existing_labels.find(kLayerLabel);
      existing_layer != nullptr && existing_layer->as_string() != to_string(layer)) {
    return contradiction(kLayerLabel, layer);
  }
  if (layer == Layer::kCloud && existing_labels.contains(kEdgeRole))
    return contradiction(kEdgeRole, layer);
  Json& labels = node.make("metadata/labels");
  labels.set(kLayerLabel, to_string(layer));
  if (layer == Layer::kCloud) return node;
  labels.set(kEdgeRole, "");
  node.make("spec").set("taints", Json::array({edge_taint()}));
  return node;
}

std::optional<Json> placement_patch(const Json& node, Layer layer) {
  const Json& labels = node.at("metadata/labels");
  const auto& taints = node.at("spec/taints").as_array();
  const auto labelled = parse_layer(labels[kLayerLabel].as_string());
  const bool role = labels.contains(kEdgeRole);
  Json wanted_labels = Json::object();
  Json wanted_taints = Json::array();
  if (layer == Layer::kCloud) {
    if (role) wanted_labels.set(kEdgeRole, nullptr);
    if (labelled != layer) wanted_labels.set(kLayerLabel, to_string(layer));
    // A former edge node loses the taint of the role. Without the role the taint is an
    // administrator's, and stays.
    for (const Json& taint : taints) {
      if (!role || !is_edge_taint(taint)) wanted_taints.push_back(taint);
    }
  } else {
    if (!role) wanted_labels.set(kEdgeRole, "");
    if (!labelled || *labelled == Layer::kCloud) wanted_labels.set(kLayerLabel, to_string(layer));
    for (const Json& taint : taints) wanted_taints.push_back(taint);
    if (std::none_of(taints.begin(), taints.end(), is_edge_taint))
      wanted_taints.push_back(edge_taint());
  }
  const bool other_taints = wanted_taints.size() != taints.size();
  if (wanted_labels.empty() && !other_taints) return std::nullopt;
  // The patch replaces the whole list of taints; resourceVersion protects changes of other writers.
  Json patch = Json::object(
      {{"metadata", Json::object({{"uid", node.at("metadata/uid")},
                                  {"resourceVersion", node.at("metadata/resourceVersion")}})}});
  if (!wanted_labels.empty()) patch["metadata"].set("labels", std::move(wanted_labels));
  if (other_taints) patch.set("spec", Json::object({{"taints", std::move(wanted_taints)}}));
  return patch;
}

}  // namespace varda::gateway
