#include "controllers/inferencemodel/indexes.h"

#include <map>
#include <set>

#include "controllers/inferencemodel/plan.h"
#include "hosting/chosen_model.h"
#include "hosting/labels.h"
#include "hosting/service_address.h"
#include "net/url.h"

namespace varda::controllers::inferencemodel {

std::vector<std::string> index_by_node(const api::InferenceModel& model) {
  if (!model.spec.on_edge()) return {};
  std::vector<std::string> nodes;
  for (const std::string* name : {&model.spec.node_name, &model.status.node}) {
    if (!name->empty()) nodes.push_back(*name);
  }
  return nodes;
}

std::vector<std::string> index_by_selector(const api::InferenceModel& model) {
  if (!model.spec.on_edge() || !model.spec.node_name.empty()) return {};
  return hosting::selector_values(model.spec.node_selector);
}

std::vector<std::string> index_by_digest(const api::InferenceModel& model) {
  std::set<std::string> digests;
  if (!model.spec.on_edge()) return {};
  for (const api::ManifestEntry& entry : hosting::manifest_of(model))
    digests.insert(entry.sha256sum);
  return {digests.begin(), digests.end()};
}

std::vector<std::shared_ptr<const api::InferenceModel>> models_near(
    const std::string& node, const std::map<std::string, std::string>& labels,
    const runtime::Caches& caches) {
  const auto models = caches.of<api::InferenceModel>();
  std::map<meta::ObjectKey, std::shared_ptr<const api::InferenceModel>> near;
  for (auto& model : models.by_index(kByNode, node)) near.emplace(model->metadata.key(), model);
  for (const std::string& value : hosting::values_to_search(labels)) {
    for (auto& model : models.by_index(kBySelector, value)) {
      if (hosting::matches(model->spec.node_selector, labels))
        near.emplace(model->metadata.key(), model);
    }
  }
  std::vector<std::shared_ptr<const api::InferenceModel>> out;
  for (auto& [key, model] : near) out.push_back(std::move(model));
  return out;
}

std::optional<hosting::PortClaim> port_claim(const api::InferenceModel& model) {
  if (!model.spec.on_edge() || model.spec.replicas == 0) return {};
  const std::string& node = model.spec.node_name.empty() ? model.status.node : model.spec.node_name;
  if (node.empty()) return {};
  const meta::OwnerReference* parent = model.metadata.controller();
  const auto url = net::Url::parse(model.status.url);
  return hosting::PortClaim{
      .node = node,
      .port = model.spec.port(),
      .owner = "InferenceModel " + model.metadata.key().str(),
      .uid = parent != nullptr ? parent->uid : model.metadata.uid,
      .since = model.metadata.creation_timestamp,
      .held = url.ok() && url->port == model.spec.port() && model.status.node == node};
}

std::string at_port(std::int64_t port) { return std::to_string(port); }
std::string at_port(std::int64_t port, std::string_view node) {
  return at_port(port) + " " + std::string(node);
}

std::vector<std::string> index_by_port(const api::InferenceModel& model) {
  if (!model.spec.on_edge()) return {};
  return {at_port(model.spec.port()), at_port(model.spec.port(), model.spec.node_name)};
}

std::vector<std::string> index_by_address(const api::InferenceModel& model) {
  if (model.spec.on_edge() || model.spec.service.type != "NodePort" ||
      model.status.ready_replicas == 0)
    return {};
  if (model.status.url.empty()) return {""};
  std::string host = hosting::host_of(model.status.url);
  if (host.empty()) return {};
  return {std::move(host)};
}

std::vector<std::string> index_by_model_ref(const api::InferenceModel& model) {
  const auto& ref = model.spec.model_ref;
  if (!ref) return {};
  return {meta::ObjectKey{model.metadata.ns, ref->selector ? "" : ref->name}.str()};
}

std::vector<meta::ObjectKey> models_referring_to(const meta::ObjectKey& model,
                                                 const runtime::Caches& caches) {
  std::vector<meta::ObjectKey> keys;
  for (const std::string& name : {model.name, std::string()}) {
    for (const auto& one : caches.of<api::InferenceModel>().by_index(
             kByModelRef, meta::ObjectKey{model.ns, name}.str()))
      keys.push_back(one->metadata.key());
  }
  return keys;
}

std::vector<std::string> index_by_model(const api::Pod& pod) {
  const auto label = pod.metadata.labels.find(std::string(hosting::kModelLabel));
  if (label == pod.metadata.labels.end()) return {};
  return {meta::ObjectKey{pod.metadata.ns, label->second}.str()};
}

std::vector<std::string> index_model_pods_by_node(const api::Pod& pod) {
  if (pod.spec.node_name.empty() ||
      !pod.metadata.labels.contains(std::string(hosting::kModelLabel)))
    return {};
  return {pod.spec.node_name};
}

}  // namespace varda::controllers::inferencemodel
