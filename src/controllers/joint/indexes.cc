#include "controllers/joint/indexes.h"

#include <algorithm>
#include <map>
#include <utility>

#include "codec/json.h"
#include "controllers/joint/child.h"
#include "controllers/joint/plan.h"
#include "controllers/joint/tier.h"
#include "controllers/workers/workers.h"
#include "hosting/node_limits.h"

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

// The node's facts that affect every service there.
std::string facts_of(const api::EdgeNode& node) {
  std::string text = node.status.model_root + "\n" + node.status.worker_root + "\n" +
                     node.status.worker_socket_directory + "\n" + node.status.address + "\n" +
                     node.metadata.deletion_timestamp.value_or("") + node.metadata.uid;
  if (const meta::Condition* connected = meta::find_condition(node.status.conditions, "Connected"))
    text += "\n" + connected->status + connected->reason + connected->message;
  // A service that a full list left out gets no other notice.
  if (node.spec.models.size() >= hosting::kModelsPerNode) text += "\nmodels full";
  if (node.spec.workers.size() >= hosting::kWorkersPerNode) text += "\nworkers full";
  return text;
}

std::string facts_of(const api::Node& node) {
  std::string text = node.metadata.uid + node.metadata.deletion_timestamp.value_or("");
  for (const auto& [key, value] : node.metadata.labels) text += "\n" + key + "=" + value;
  for (const api::NodeAddress& address : node.status.addresses)
    text += "\n" + address.type + address.address;
  if (const api::CoreCondition* ready = find_condition(node.status.conditions, "Ready"))
    text += "\n" + ready->status + ready->reason + ready->message;
  return text;
}

// Reports, and the parts of the work list that decide their meaning, by key of a model or uid of a
// service. The JSON includes members that are added to reports later.
std::map<std::string, Json> reports_of(const api::EdgeNode& node) {
  std::map<std::string, Json> out;
  const auto add = [&](const std::string& key, const Json& item) {
    out.try_emplace(key, Json::array()).first->second.push_back(item);
  };
  const Json status = node.status.to_json(), spec = node.spec.to_json();
  for (const Json* models : {&status["models"], &spec["models"]}) {
    for (const Json& model : models->as_array()) {
      const std::string& key = model["key"].as_string();
      if (key.find('.') != std::string::npos) add(key, model);
    }
  }
  for (const Json& report : status["workers"].as_array()) add(report["uid"].as_string(), report);
  for (const Json& worker : spec["workers"].as_array())
    add(worker["uid"].as_string(), worker["key"]);
  return out;
}

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

std::vector<std::string> index_by_node(const JointInferenceService& service) {
  const std::vector<Tier> tiers = tiers_of(service);
  std::vector<std::string> names = named_nodes(tiers);
  // The nodes of former pods still affect a service that was moved.
  for (const api::JointEndpoint& endpoint : service.status.endpoints)
    names.push_back(endpoint.node);
  std::erase(names, "");
  if (affects_every_node(tiers)) names.push_back("");
  return once(std::move(names));
}

std::vector<std::string> index_by_first_node(const JointInferenceService& service) {
  const std::vector<Tier> tiers = tiers_of(service);
  if (tiers.empty()) return {};
  return {tiers.front().node};
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

Keys of_node(const std::string& node, const runtime::Caches& caches) {
  Keys keys;
  for (const std::string& value : {node, std::string()})
    add_keys(caches.of<JointInferenceService>().by_index(kByNode, value), keys);
  return sorted(std::move(keys));
}

Keys first_on(const std::string& node, const runtime::Caches& caches) {
  Keys keys;
  for (const std::string& value : {node, std::string()})
    add_keys(caches.of<JointInferenceService>().by_index(kByFirstNode, value), keys);
  for (const auto& pod : caches.of<api::Pod>().by_index(kPodsOn, node)) {
    for (ObjectKey& key : service_of(*pod)) keys.push_back(std::move(key));
  }
  return sorted(std::move(keys));
}

AgentChange change_of(const api::EdgeNode& before, const api::EdgeNode& now) {
  AgentChange out;
  out.of_node = facts_of(before) != facts_of(now);
  const std::map<std::string, Json> old = reports_of(before), fresh = reports_of(now);
  for (const auto& [key, reports] : fresh) {
    const auto found = old.find(key);
    if (found == old.end() || found->second != reports) out.reports.insert(key);
  }
  for (const auto& [key, reports] : old) {
    if (!fresh.contains(key)) out.reports.insert(key);
  }
  return out;
}

bool same_to_services(const api::Node& before, const api::Node& now) {
  return facts_of(before) == facts_of(now);
}

Keys changed_by(const api::EdgeNode* before, const api::EdgeNode* now,
                const runtime::Caches& caches) {
  const std::string& name = (now != nullptr ? now : before)->metadata.name;
  if (before == nullptr || now == nullptr) return of_node(name, caches);
  const AgentChange change = change_of(*before, *now);
  if (change.of_node) return of_node(name, caches);
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
  if (before != nullptr && now != nullptr && same_to_services(*before, *now)) return {};
  return of_node((now != nullptr ? now : before)->metadata.name, caches);
}

}  // namespace varda::controllers::joint
