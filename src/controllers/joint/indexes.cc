#include "controllers/joint/indexes.h"

#include <algorithm>
#include <utility>

#include "controllers/joint/child.h"
#include "controllers/joint/plan.h"
#include "controllers/workers/workers.h"
#include "hosting/agent_change.h"
#include "hosting/service_address.h"

namespace varda::controllers::joint {

namespace {

using api::JointInferenceService;
using meta::ObjectKey;

void add_keys(const std::vector<std::shared_ptr<const JointInferenceService>>& services,
              Keys& keys) {
  for (const auto& service : services) keys.push_back(service->metadata.key());
}

Keys sorted(Keys keys) {
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

std::vector<std::string> once(std::vector<std::string> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

// The service of a model's key in EdgeNode, which is NAMESPACE/NAME.WORKER.
meta::ObjectKey service_of_model(const std::string& key) {
  const std::size_t slash = key.find('/'), dot = key.find('.');
  if (slash == std::string::npos || dot == std::string::npos || dot < slash) return {};
  return {key.substr(0, slash), key.substr(slash + 1, dot - slash - 1)};
}

// A layer as an index value, which is neither a name nor a label.
std::string at_layer(std::string_view layer) { return ":" + std::string(layer); }

}  // namespace

std::vector<std::string> index_by_model(const JointInferenceService& service) {
  std::vector<std::string> names;
  const std::string& ns = service.metadata.ns;
  for (const Tier& tier : tiers_of(service)) {
    names.push_back(ObjectKey{ns, tier.model->name}.str());
    names.push_back(ObjectKey{ns, child_name(service, tier)}.str());
  }
  return once(std::move(names));
}

std::vector<std::string> places_of(const Tier& tier) {
  if (!tier.node.empty()) return {tier.node};
  if (tier.selector == nullptr) return {tier.layer.empty() ? std::string() : at_layer(tier.layer)};
  return workers::selection_values(*tier.selector);
}

std::vector<std::string> values_to_search(const std::string& name, const api::Node* node) {
  std::vector<std::string> values{"", name};
  if (node == nullptr) return values;
  for (std::string& value : hosting::values_of(node->metadata.labels))
    values.push_back(std::move(value));
  values.push_back(at_layer(hosting::layer_of(*node)));
  return values;
}

bool on_only_node(const Tier& tier) {
  return tier.node.empty() && tier.selector == nullptr && tier.layer != api::JointTier::kCloud;
}

hosting::NodeList nodes_for(const Tier& tier, const runtime::Caches& caches) {
  hosting::NodeSet nodes(caches);
  add_nodes_of(tier, caches, nodes);
  return nodes.list();
}

void add_nodes_of(const Tier& tier, const runtime::Caches& caches, hosting::NodeSet& nodes) {
  if (!tier.node.empty()) return nodes.add(tier.node);
  const auto all = caches.of<api::Node>();
  for (const std::string& place : places_of(tier)) {
    if (place.empty()) {  // {}, NotIn and DoesNotExist: most nodes match
      nodes.add_all(all.list());
    } else if (tier.selector == nullptr) {
      nodes.add_all(all.by_index(hosting::kNodesByLayer, tier.layer));
    } else {
      nodes.add_all(all.by_index(hosting::kNodesByLabel, place));
    }
  }
}

std::vector<std::string> nodes_by_name(const JointInferenceService& service) {
  std::vector<std::string> names = named_nodes(tiers_of(service));
  // The nodes of former pods still affect a service that was moved.
  for (const api::JointEndpoint& endpoint : service.status.endpoints) {
    if (!endpoint.node.empty()) names.push_back(endpoint.node);
  }
  return once(std::move(names));
}

std::vector<std::string> index_by_node(const JointInferenceService& service) {
  const std::vector<Tier> tiers = tiers_of(service);
  std::vector<std::string> places = nodes_by_name(service);
  for (const Tier& tier : tiers) {
    if (&tier != &tiers.front() && !on_only_node(tier)) continue;
    for (std::string& place : places_of(tier)) places.push_back(std::move(place));
  }
  return once(std::move(places));
}

std::vector<std::string> index_by_first_node(const JointInferenceService& service) {
  const std::vector<Tier> tiers = tiers_of(service);
  if (tiers.empty()) return {};
  return places_of(tiers.front());
}

std::vector<std::string> index_by_address(const JointInferenceService& service) {
  const std::vector<Tier> tiers = tiers_of(service);
  if (tiers.size() < 2 || !has_node_port(service, tiers.back())) return {};
  for (const api::JointTierStatus& tier : service.status.tiers) {
    if (tier.name == tiers.back().name) return {hosting::host_of(tier.url)};
  }
  return {""};
}

std::vector<std::string> index_by_uid(const JointInferenceService& service) {
  return {service.metadata.uid};
}

std::vector<std::string> index_pods_on(const api::Pod& pod) {
  if (pod.spec.node_name.empty() || service_of(pod).empty()) return {};
  return {pod.spec.node_name};
}

Keys service_of(const api::Pod& pod) {
  const auto& labels = pod.metadata.labels;
  const auto kind = labels.find(std::string(workers::kJobKindLabel)),
             job = labels.find(std::string(workers::kJobLabel));
  if (kind == labels.end() || job == labels.end() ||
      kind->second != JointInferenceService::resource().kind)
    return {};
  return {{pod.metadata.ns, job->second}};
}

Keys of_model(const ObjectKey& model, const runtime::Caches& caches) {
  Keys keys;
  add_keys(caches.of<JointInferenceService>().by_index(kByModel, model.str()), keys);
  return keys;
}

Keys of_node(const std::string& name, const api::Node* node, const runtime::Caches& caches) {
  Keys keys;
  for (const std::string& value : values_to_search(name, node))
    add_keys(caches.of<JointInferenceService>().by_index(kByNode, value), keys);
  return sorted(std::move(keys));
}

Keys first_on(const std::string& node, const runtime::Caches& caches) {
  Keys keys;
  const auto node_object = caches.of<api::Node>().get({"", node});
  for (const std::string& value : values_to_search(node, node_object.get()))
    add_keys(caches.of<JointInferenceService>().by_index(kByFirstNode, value), keys);
  for (const auto& pod : caches.of<api::Pod>().by_index(kPodsOn, node)) {
    for (ObjectKey& key : service_of(*pod)) keys.push_back(std::move(key));
  }
  return sorted(std::move(keys));
}

Keys changed_by(const api::EdgeNode* before, const api::EdgeNode* now,
                const runtime::Caches& caches) {
  const std::string& name = (now != nullptr ? now : before)->metadata.name;
  const auto all = [&] {
    return of_node(name, caches.of<api::Node>().get({"", name}).get(), caches);
  };
  if (before == nullptr || now == nullptr) return all();
  const hosting::AgentChange change = hosting::change_of(*before, *now);
  if (change.of_node) return all();
  const auto services = caches.of<JointInferenceService>();
  Keys keys;
  for (const std::string& key : change.reports) {
    add_keys(services.by_index(kByUid, key), keys);
    if (ObjectKey service = service_of_model(key); services.get(service) != nullptr)
      keys.push_back(std::move(service));
  }
  return sorted(std::move(keys));
}

Keys changed_by(const api::Node* before, const api::Node* now, const runtime::Caches& caches) {
  if (before != nullptr && now != nullptr && hosting::same_to_pods(*before, *now)) return {};
  const auto services = caches.of<JointInferenceService>();
  Keys keys;
  for (const api::Node* node : {before, now}) {
    if (node == nullptr) continue;
    for (ObjectKey& key : of_node(node->metadata.name, node, caches))
      keys.push_back(std::move(key));
    for (const std::string& address : hosting::index_by_forwarding(*node))
      add_keys(services.by_index(kByAddress, address), keys);
  }
  return sorted(std::move(keys));
}

}  // namespace varda::controllers::joint
