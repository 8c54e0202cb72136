// Indexes of Nodes: by label, by layer, and by the address of node ports. So neither a selector nor
// a node port scans all nodes. Pure functions over caches.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/core/node.h"
#include "hosting/placement.h"
#include "runtime/controller.h"

namespace varda::hosting {

using Labels = std::map<std::string, std::string>;

/// Nodes by label, as "key=value", and by each label's key.
inline constexpr const char* kNodesByLabel = "label";
std::vector<std::string> values_of(const Labels& labels);
/// Nodes by layer_of().
inline constexpr const char* kNodesByLayer = "layer";
std::vector<std::string> index_by_layer(const api::Node& node);
/// Nodes that forward node ports, by forwarding_address(); all of them under "".
inline constexpr const char* kNodesByForwarding = "node port address";
std::vector<std::string> index_by_forwarding(const api::Node& node);
template <runtime::Object T>
void index_nodes(runtime::Watches<T>& w) {
  w.template indexes<api::Node>(
       kNodesByLabel, [](const api::Node& node) { return values_of(node.metadata.labels); })
      .template indexes<api::Node>(kNodesByLayer, index_by_layer)
      .template indexes<api::Node>(kNodesByForwarding, index_by_forwarding);
}

/// True if two versions of a Node mean the same to its pods: heartbeats, images and capacity do not
/// matter.
bool same_to_pods(const api::Node& before, const api::Node& now);

/// Index values of an object with this selector, for search by a node: a node that matches has the
/// value among values_of() of the node's labels, or the value is "" (the selector is empty).
std::vector<std::string> selector_values(const Labels& selector);
/// values_of() and "": the values under which to search for selectors that match these labels.
std::vector<std::string> values_to_search(const Labels& labels);

bool matches(const Labels& selector, const Labels& labels);
/// Nodes with all labels of the selector; all nodes if it is empty.
NodeList nodes_with(const Labels& selector, const runtime::Caches& caches);
/// The node's labels; empty if the node is gone.
Labels labels_of(const std::string& node, const runtime::Caches& caches);

/// A set of nodes that grows by parts of the cache.
class NodeSet {
 public:
  explicit NodeSet(const runtime::Caches& caches) : caches_(caches) {}
  void add(const std::string& name);
  void add_all(const NodeList& nodes);
  /// All nodes that place() needs for the model.
  void add_for(const api::InferenceModel& model);
  /// The nodes that service_address() needs for a node port: the first one that forwards, and the
  /// one of the published URL.
  void add_forwarding(std::string_view published_url);
  NodeList list() const;  // sorted by name

 private:
  const runtime::Caches& caches_;
  std::map<std::string, std::shared_ptr<const api::Node>> nodes_;
};

}  // namespace varda::hosting
