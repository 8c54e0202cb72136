#include "checker.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/check.h"

namespace varda::sim {

using codec::Json;

namespace {

constexpr std::string_view kModels = "/registry/ai.kubeedge.io/inferencemodels/default/";
constexpr std::string_view kEdgeNodes = "/registry/edgeai.io/edgenodes/";
constexpr std::string_view kLeases = "/registry/coordination.k8s.io/leases/";

constexpr std::string_view kOperatorLease = "/kube-system/varda-operator";

std::string url_of(const std::string& address, int port) { return "http://" + address + ":" + std::to_string(port); }

std::string condition(const Json& object, std::string_view type) {
  for (const Json& one : object.at("status/conditions").as_array())
    if (one["type"].as_string() == type) return one["status"].as_string() + " " + one["reason"].as_string();
  return "";
}

}  // namespace

Checker::Checker(Cluster& cluster, const std::vector<std::unique_ptr<Machine>>& machines, const std::vector<Wish>& wishes,
                 const std::optional<int>& deployment, const Origin& origin)
    : cluster_(cluster),
      machines_(machines),
      wishes_(wishes),
      deployment_(deployment),
      origin_(origin),
      watch_(cluster.store().watch("/registry/", cluster.store().revision()).value()),
      last_write_(cluster.clock().now()) {}

const Wish* Checker::wish_of(const std::string& name) const {
  const auto found = std::find_if(wishes_.begin(), wishes_.end(), [&](const Wish& wish) { return wish.name == name; });
  return found == wishes_.end() ? nullptr : &*found;
}

std::optional<std::string> Checker::after_step() {
  auto events = watch_->poll();
  CHECK(events.ok());
  for (const store::Event& event : *events)
    if (auto wrong = note(event)) return wrong;
  if (auto wrong = containers()) return wrong;
  return files();
}

std::optional<std::string> Checker::note(const store::Event& event) {
  const std::string& key = event.entry.key;
  bool counts = !key.starts_with(kLeases);
  if (key.ends_with(kOperatorLease) && event.type != store::EventType::kDelete) {
    const auto lease = codec::parse_json(*event.entry.value);
    CHECK(lease.ok());
    const std::string& holder = lease->at("spec/holderIdentity").as_string();
    counts = holder != leader_;
    leader_ = holder;
  }
  if (counts) {
    ++writes_;
    last_write_ = cluster_.clock().now();
    last_written_ = key;
  }
  const bool model = key.starts_with(kModels), edge_node = key.starts_with(kEdgeNodes);
  if (!model && !edge_node) return {};
  const std::string name = key.substr(model ? kModels.size() : kEdgeNodes.size());
  if (event.type == store::EventType::kDelete) {
    if (edge_node) acknowledged_.erase(name);
    return {};
  }
  const auto object = codec::parse_json(*event.entry.value);
  CHECK(object.ok());
  return model ? note_model(name, *object) : note_edge_node(name, *object);
}

std::optional<std::string> Checker::monotonic(Known& known, const Json& object, const std::string& what) {
  const std::string& uid = object.at("metadata/uid").as_string();
  if (known.uid != uid) known = {.uid = uid};
  const std::int64_t generation = object.at("metadata/generation").as_integer();
  const std::int64_t observed = object.at("status/observedGeneration").as_integer();
  if (generation < known.generation) return what + ": metadata.generation goes back to " + std::to_string(generation);
  if (observed < known.observed)
    return what + ": status.observedGeneration goes back from " + std::to_string(known.observed) + " to " +
           std::to_string(observed);
  if (observed > generation)
    return what + ": status.observedGeneration " + std::to_string(observed) + " of an object at " + std::to_string(generation);
  known.generation = generation;
  known.observed = observed;
  return {};
}

std::optional<std::string> Checker::note_model(const std::string& name, const Json& object) {
  Known& known = models_[name];
  if (auto wrong = monotonic(known, object, "InferenceModel " + name)) return wrong;
  const Wish* wish = wish_of(name);
  if (wish != nullptr && wish->exists && wish->uid == known.uid && object.at("metadata/deletionTimestamp").is_null()) {
    for (const auto& [member, value] : wish->spec.as_object())
      if (object["spec"][member] != value)
        return "InferenceModel " + name + ": spec." + member + " is " + codec::write_json(object["spec"][member]) +
               ", its user was told " + codec::write_json(value);
  }
  const std::string& url = object.at("status/url").as_string();
  const std::string& serving = object.at("status/servingVersion").as_string();
  if (!url.empty() && (url != known.url || serving != known.serving)) {
    const bool answered = std::any_of(machines_.begin(), machines_.end(), [&](const auto& machine) {
      return machine->answered().contains({"default/" + name, url, serving});
    });
    if (!answered)
      return "InferenceModel " + name + ": status.url is " + url + " with version \"" + serving + "\", which never answered there";
  }
  known.url = url;
  known.serving = serving;
  return {};
}

std::optional<std::string> Checker::note_edge_node(const std::string& name, const Json& object) {
  Known& known = edge_nodes_[name];
  if (auto wrong = monotonic(known, object, "EdgeNode " + name)) return wrong;
  acknowledged_.erase(name);
  // Generation 1 is the object as the agent made it: nobody has asked for anything yet.
  if (known.generation <= 1 || known.observed != known.generation) return {};
  std::set<std::string>& keys = acknowledged_[name];
  for (const Json& model : object.at("spec/models").as_array()) keys.insert(model["key"].as_string());
  return {};
}

std::optional<std::string> Checker::containers() {
  std::map<std::string, const Machine*> live;
  for (const auto& machine : machines_) {
    if (deleted_nodes_.contains(machine->name())) continue;
    for (const auto& [uid, container] : machine->containers()) {
      if (container->model_key.empty()) continue;
      const auto [at, fresh] = live.emplace(container->model_key, machine.get());
      if (!fresh) return "two live pods of " + container->model_key + ": on " + at->second->name() + " and on " + machine->name();
    }
  }
  return {};
}

std::optional<std::string> Checker::files() {
  for (const auto& machine : machines_) {
    const auto known = acknowledged_.find(machine->name());
    for (const auto& [key, content] : machine->exposed()) {
      // An archive's content is its URL; what has a digest of its own is whole.
      if (!content.empty() && !machine->verified(content))
        return "node " + machine->name() + " exposes " + key + " with \"" + content + "\", which nobody has verified";
      if (known == acknowledged_.end() || !machine->agent_running()) continue;
      if (!known->second.contains(key))
        return "node " + machine->name() + " has acknowledged that " + key + " is gone and still exposes its files";
    }
  }
  return {};
}

std::optional<std::string> Checker::model_at_rest(const Wish& wish) {
  const std::string what = "InferenceModel " + wish.name + ": ";
  const auto reply = cluster_.call("GET", "/apis/ai.kubeedge.io/v1alpha1/namespaces/default/inferencemodels/" + wish.name);
  const auto pod = cluster_.call("GET", "/api/v1/namespaces/default/pods/" + wish.name);
  std::size_t running = 0;
  const Machine* home = nullptr;
  for (const auto& machine : machines_) {
    if (wish.exists && machine->name() == wish.node()) home = machine.get();
    for (const auto& [uid, container] : machine->containers())
      if (container->name == wish.name) ++running;
  }
  if (!wish.exists || home == nullptr || !wish.wants_pod()) {
    if (pod.status != 404) return what + "it shall have no pod";
    if (running > 0) return what + "a container is left";
    if (!wish.exists) return reply.status == 404 ? std::nullopt : std::optional(what + "it is deleted and still there");
    if (!reply.body.at("status/url").is_null()) return what + "nothing runs and it has a URL";
    const std::string ready = condition(reply.body, "Ready");
    const std::string wanted = home == nullptr ? "False NodeNotFound" : "False ScaledToZero";
    return ready == wanted ? std::nullopt : std::optional(what + "Ready is " + ready + " and not " + wanted);
  }
  const Json& object = reply.body;
  if (object.at("status/observedGeneration") != object.at("metadata/generation")) return what + "its last change is not observed";
  std::string target_url;
  for (const Json& version : wish.spec["manifest"].as_array())
    if (version["version"].as_string() == wish.target()) target_url = version["downloadURL"].as_string();
  const std::string target_ready = condition(object, "TargetVersionReady");
  if (origin_.broken.contains(target_url)) {
    // An archive that cannot be had: whatever served before goes on, and the user is told.
    if (target_ready != "False DownloadFailed")
      return what + "TargetVersionReady is " + target_ready + " and not False DownloadFailed";
    return {};
  }
  const std::string url = url_of(home->address(), wish.port);
  if (running != 1) return what + std::to_string(running) + " containers run";
  if (target_ready != "True Serving") return what + "TargetVersionReady is " + target_ready;
  if (condition(object, "Ready") != "True Serving") return what + "Ready is " + condition(object, "Ready");
  if (object.at("status/url").as_string() != url) return what + "its URL is " + object.at("status/url").as_string();
  if (object.at("status/servingVersion").as_string() != wish.target())
    return what + "it serves " + object.at("status/servingVersion").as_string() + " and not " + wish.target();
  for (const auto& [uid, container] : home->containers())
    if (container->name == wish.name && container->serving != wish.target())
      return what + "its server serves " + container->serving + " and not " + wish.target();
  return {};
}

std::optional<std::string> Checker::deployment_at_rest() {
  if (!deployment_) return {};
  const auto live = cluster_.call("GET", "/apis/apps/v1/namespaces/default/deployments/web");
  const std::int64_t asked = *deployment_;
  const std::string what = "Deployment web with " + std::to_string(asked) + " replicas: ";
  if (live.body.at("status/observedGeneration") != live.body.at("metadata/generation"))
    return what + "its last change is not observed";
  for (const char* member : {"replicas", "readyReplicas", "availableReplicas"})
    if (const std::int64_t told = live.body["status"][member].as_integer(0); told != asked)
      return what + "status." + member + " is " + std::to_string(told);
  const auto pods = cluster_.call("GET", "/api/v1/namespaces/default/pods?labelSelector=app%3Dweb");
  if (const auto there = static_cast<std::int64_t>(pods.body["items"].size()); there != asked)
    return what + std::to_string(there) + " pods";
  std::int64_t running = 0;
  for (const auto& machine : machines_)
    for (const auto& [uid, container] : machine->containers()) running += container->model_key.empty() ? 1 : 0;
  if (running != asked) return what + std::to_string(running) + " containers run";
  return {};
}

std::optional<std::string> Checker::at_rest() {
  for (const Wish& wish : wishes_)
    if (auto wrong = model_at_rest(wish)) return wrong;
  if (auto wrong = deployment_at_rest()) return wrong;
  for (const auto& machine : machines_) {
    std::set<std::string> wanted;
    for (const Wish& wish : wishes_)
      if (wish.exists && wish.node() == machine->name()) wanted.insert("default/" + wish.name);
    const auto node = cluster_.call("GET", "/apis/edgeai.io/v1alpha1/edgenodes/" + machine->name());
    if (node.status != 200) return "EdgeNode " + machine->name() + " is missing";
    std::set<std::string> told;
    for (const Json& model : node.body.at("spec/models").as_array()) told.insert(model["key"].as_string());
    if (told != wanted) return "EdgeNode " + machine->name() + ": its work list is not what the models ask for";
    for (const auto& [key, content] : machine->exposed())
      if (!wanted.contains(key)) return "node " + machine->name() + " exposes " + key + ", which nobody wants there";
    if (condition(cluster_.call("GET", "/api/v1/nodes/" + machine->name()).body, "Ready") != "True AgentConnected")
      return "Node " + machine->name() + " is not Ready";
    if (condition(node.body, "Connected") != "True AgentConnected") return "EdgeNode " + machine->name() + " is not Connected";
  }
  return {};
}

}  // namespace varda::sim
