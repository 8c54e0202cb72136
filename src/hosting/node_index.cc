#include "hosting/node_index.h"

#include <algorithm>
#include <utility>

#include "hosting/service_address.h"

namespace varda::hosting {

namespace {

std::string facts_of(const api::Node& node) {
  std::string text = node.metadata.uid + node.metadata.deletion_timestamp.value_or("");
  for (const auto& [key, value] : node.metadata.labels) text += "\n" + key + "=" + value;
  for (const api::NodeAddress& address : node.status.addresses)
    text += "\n" + address.type + address.address;
  if (const api::CoreCondition* ready = find_condition(node.status.conditions, "Ready"))
    text += "\n" + ready->status + ready->reason + ready->message;
  return text;
}

}  // namespace

std::vector<std::string> values_of(const Labels& labels) {
  std::vector<std::string> values;
  for (const auto& [key, value] : labels) {
    values.push_back(key);
    values.push_back(key + "=" + value);
  }
  return values;
}

std::vector<std::string> index_by_layer(const api::Node& node) { return {layer_of(node)}; }

std::vector<std::string> index_by_forwarding(const api::Node& node) {
  std::string address = forwarding_address(node);
  if (address.empty()) return {};
  return {"", std::move(address)};
}

bool same_to_pods(const api::Node& before, const api::Node& now) {
  return facts_of(before) == facts_of(now);
}

std::vector<std::string> selector_values(const Labels& selector) {
  if (selector.empty()) return {""};
  return {selector.begin()->first + "=" + selector.begin()->second};
}

std::vector<std::string> values_to_search(const Labels& labels) {
  std::vector<std::string> values = values_of(labels);
  values.emplace_back();
  return values;
}

bool matches(const Labels& selector, const Labels& labels) {
  return std::all_of(selector.begin(), selector.end(), [&](const auto& wanted) {
    const auto found = labels.find(wanted.first);
    return found != labels.end() && found->second == wanted.second;
  });
}

NodeList nodes_with(const Labels& selector, const runtime::Caches& caches) {
  const auto nodes = caches.of<api::Node>();
  if (selector.empty()) return nodes.list();
  NodeList found = nodes.by_index(kNodesByLabel, selector_values(selector).front());
  std::erase_if(found, [&](const auto& node) { return !matches(selector, node->metadata.labels); });
  return found;
}

Labels labels_of(const std::string& node, const runtime::Caches& caches) {
  const auto found = caches.of<api::Node>().get({"", node});
  return found == nullptr ? Labels() : found->metadata.labels;
}

void NodeSet::add(const std::string& name) {
  if (name.empty() || nodes_.contains(name)) return;
  if (auto node = caches_.of<api::Node>().get({"", name})) nodes_.emplace(name, std::move(node));
}

void NodeSet::add_all(const NodeList& nodes) {
  for (const auto& node : nodes) nodes_.emplace(node->metadata.name, node);
}

void NodeSet::add_for(const api::InferenceModel& model) {
  if (!model.spec.on_edge()) return;
  add(model.spec.node_name);
  add(model.status.node);
  if (model.spec.node_name.empty()) add_all(nodes_with(model.spec.node_selector, caches_));
}

void NodeSet::add_forwarding(std::string_view published_url) {
  const auto nodes = caches_.of<api::Node>();
  for (const std::string& address : {std::string(), host_of(published_url)}) {
    if (auto node = nodes.first_by_index(kNodesByForwarding, address))
      nodes_.emplace(node->metadata.name, std::move(node));
  }
}

NodeList NodeSet::list() const {
  NodeList out;
  for (const auto& [name, node] : nodes_) out.push_back(node);
  return out;
}

}  // namespace varda::hosting
