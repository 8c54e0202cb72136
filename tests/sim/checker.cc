#include "checker.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "requests.h"

namespace varda::sim {

using codec::Json;

namespace {

/// Kinds of objects that are checked at each event.
enum class Follow { kPlain, kInferenceModel, kJointInferenceService, kEdgeNode };
struct FollowedKind {
  std::string_view prefix, kind;
  Follow how = Follow::kPlain;
};
constexpr FollowedKind kFollowed[] = {
    {"/registry/ai.kubeedge.io/inferencemodels/default/", "InferenceModel ",
     Follow::kInferenceModel},
    {"/registry/edgeai.io/edgenodes/", "EdgeNode ", Follow::kEdgeNode},
    {"/registry/sedna.io/jointinferenceservices/default/", "JointInferenceService ",
     Follow::kJointInferenceService},
    {"/registry/sedna.io/models/default/", "Model "},
    {"/registry/edgeai.io/datasets/default/", "Dataset "},
    {"/registry/apps/deployments/default/", "Deployment "},
};
constexpr std::string_view kLeases = "/registry/coordination.k8s.io/leases/";
constexpr std::string_view kOperatorLease = "/kube-system/varda-operator";

}  // namespace

Checker::Checker(Cluster& cluster, const std::vector<std::unique_ptr<Machine>>& machines,
                 const std::vector<std::unique_ptr<User>>& users)
    : cluster_(cluster),
      machines_(machines),
      users_(users),
      watch_(cluster.store().watch("/registry/", cluster.store().revision()).value()),
      last_write_(cluster.clock().now()) {}

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
  // Events expire an hour after they were written, even in a quiet cluster.
  const bool expires =
      key.starts_with("/registry/core/events/") && event.type == store::EventType::kDelete;
  bool counts = !key.starts_with(kLeases) && !expires;
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
  for (const FollowedKind& followed : kFollowed) {
    if (!key.starts_with(followed.prefix)) continue;
    const std::string name = key.substr(followed.prefix.size());
    if (event.type == store::EventType::kDelete) {
      if (followed.how == Follow::kEdgeNode) acknowledged_.erase(name);
      return {};
    }
    const auto object = codec::parse_json(*event.entry.value);
    CHECK(object.ok());
    const std::string what = std::string(followed.kind) + name;
    Known& known = known_[key];
    if (auto wrong = monotonic(known, *object, what)) return wrong;
    if (auto wrong = unchanged(key, *object, what)) return wrong;
    if (followed.how == Follow::kEdgeNode) note_work(name, known, *object);
    if (followed.how == Follow::kInferenceModel)
      return note_url(what, "default/" + name, known, *object);
    if (followed.how == Follow::kJointInferenceService)
      return note_url(what, "default/" + name + ".edge", known, *object);
  }
  return {};
}

std::optional<std::string> Checker::monotonic(Known& known, const Json& object,
                                              const std::string& what) {
  const std::string& uid = object.at("metadata/uid").as_string();
  if (known.uid != uid) known = {.uid = uid};
  const std::int64_t generation = object.at("metadata/generation").as_integer();
  const std::int64_t observed = object.at("status/observedGeneration").as_integer();
  if (generation < known.generation)
    return what + ": metadata.generation goes back to " + std::to_string(generation);
  if (observed < known.observed)
    return what + ": status.observedGeneration goes back from " + std::to_string(known.observed) +
           " to " + std::to_string(observed);
  if (observed > generation)
    return what + ": status.observedGeneration " + std::to_string(observed) + " of an object at " +
           std::to_string(generation);
  const std::int64_t inferences = object.at("status/inferenceNumber").as_integer();
  if (inferences < known.inferences)
    return what + ": status.inferenceNumber goes back from " + std::to_string(known.inferences) +
           " to " + std::to_string(inferences);
  known.inferences = inferences;
  known.generation = generation;
  known.observed = observed;
  return {};
}

std::optional<std::string> Checker::unchanged(const std::string& key, const Json& object,
                                              const std::string& what) const {
  const auto read = read_.find(key);
  if (read == read_.end() || read->second.uid != object.at("metadata/uid").as_string()) return {};
  for (const auto& [member, value] : read->second.spec.as_object())
    if (object["spec"][member] != value)
      return what + ": spec." + member + " is " + codec::write_json(object["spec"][member]) +
             ", its user was told " + codec::write_json(value);
  return {};
}

std::optional<std::string> Checker::note_url(const std::string& what, const std::string& name,
                                             Known& known, const Json& object) {
  const bool cloud = object.at("spec/deployToLayer").as_string() == "cloud";
  const bool joint = object["kind"].as_string() == "JointInferenceService";
  const std::string& url = object.at("status/url").as_string();
  const std::string& serving = object.at("status/servingVersion").as_string();
  if (!url.empty() && (url != known.url || serving != known.serving)) {
    const bool answered = std::any_of(machines_.begin(), machines_.end(), [&](const auto& machine) {
      return std::any_of(
          machine->answered().begin(), machine->answered().end(), [&](const auto& one) {
            const auto& [model, at, version] = one;
            return model == name && (cloud || at == url) && (joint || version == serving);
          });
    });
    if (!answered)
      return what + ": status.url is " + url + " with version \"" + serving +
             "\", which never answered there";
  }
  known.url = url;
  known.serving = serving;
  return {};
}

void Checker::note_work(const std::string& node, const Known& known, const Json& object) {
  std::set<std::string> workers;
  for (const Json& worker : object.at("spec/workers").as_array())
    workers.insert(worker["key"].as_string());
  for (const auto& machine : machines_)
    if (machine->name() == node) machine->expects_workers(workers);
  acknowledged_.erase(node);
  // The agent created generation 1; no user has assigned anything yet.
  if (known.generation <= 1 || known.observed != known.generation) return;
  std::set<std::string>& keys = acknowledged_[node];
  for (const Json& model : object.at("spec/models").as_array())
    keys.insert(model["key"].as_string());
}

std::optional<std::string> Checker::containers() {
  std::map<std::string, const Machine*> live;
  for (const auto& machine : machines_) {
    if (deleted_nodes_.contains(machine->name())) continue;
    for (const auto& [uid, container] : machine->containers()) {
      if (container->model_key.empty()) continue;
      // A moved job keeps its old pod until the new one is Ready, but one node never has two.
      const bool job = container->model_key.find('.') != std::string::npos;
      const auto [at, fresh] =
          live.emplace(container->model_key + (job ? "@" + machine->name() : ""), machine.get());
      if (!fresh)
        return "two live pods of " + container->model_key + ": on " + at->second->name() +
               " and on " + machine->name();
    }
  }
  return {};
}

std::optional<std::string> Checker::files() {
  for (const auto& machine : machines_) {
    const auto known = acknowledged_.find(machine->name());
    for (const auto& [key, content] : machine->exposed()) {
      // An archive's content is its URL, so content with a matching digest is complete.
      if (!content.empty() && !machine->verified(content))
        return "node " + machine->name() + " exposes " + key + " with \"" + content +
               "\", which nobody has verified";
      if (known == acknowledged_.end() || !machine->agent_running()) continue;
      if (!known->second.contains(key))
        return "node " + machine->name() + " has acknowledged that " + key +
               " is gone and still exposes its files";
    }
  }
  return {};
}

std::optional<std::string> Checker::check_node_settled(Machine& machine) {
  WorkKeys wanted, listed;
  for (const auto& user : users_) user->add_work(machine, wanted);
  const auto node = cluster_.call("GET", "/apis/edgeai.io/v1alpha1/edgenodes/" + machine.name());
  if (node.status != 200) return "EdgeNode " + machine.name() + " is missing";
  const Json& spec = node.body["spec"];
  for (const Json& model : spec["models"].as_array())
    listed.models.insert(model["key"].as_string());
  for (const Json& dataset : spec["datasets"].as_array())
    listed.datasets.insert(dataset["key"].as_string());
  for (const Json& worker : spec["workers"].as_array())
    listed.workers.insert(worker["key"].as_string());
  if (listed.models != wanted.models || listed.datasets != wanted.datasets ||
      listed.workers != wanted.workers)
    return "EdgeNode " + machine.name() + ": its work list is not what users ask for";
  for (const auto& [key, content] : machine.exposed())
    if (!wanted.models.contains(key))
      return "node " + machine.name() + " exposes " + key + ", which nobody wants there";
  if (machine.tokens() != wanted.workers)
    return "node " + machine.name() + " has tokens of other workers than it expects";
  if (condition(cluster_.call("GET", "/api/v1/nodes/" + machine.name()).body, "Ready") !=
      "True AgentConnected")
    return "Node " + machine.name() + " is not Ready";
  if (condition(node.body, "Connected") != "True AgentConnected")
    return "EdgeNode " + machine.name() + " is not Connected";
  return {};
}

/// Children have a live owner, and no deletion is pending.
std::optional<std::string> Checker::check_owners_settled() {
  std::set<std::string> uids;
  std::vector<std::pair<std::string, std::string>> owners;  // key of the child, uid of the owner
  for (const store::Entry& entry :
       cluster_.store().list({.prefix = "/registry/"}).value().entries) {
    if (entry.key.starts_with("/registry/apiextensions.k8s.io/") ||
        entry.key.find("/events/") != std::string::npos)
      continue;
    const auto object = codec::parse_json(*entry.value);
    CHECK(object.ok());
    const Json& metadata = std::as_const(*object)["metadata"];
    if (!metadata["deletionTimestamp"].is_null()) return entry.key + " is still being deleted";
    uids.insert(metadata["uid"].as_string());
    for (const Json& owner : metadata["ownerReferences"].as_array())
      owners.emplace_back(entry.key, owner["uid"].as_string());
  }
  for (const auto& [key, uid] : owners)
    if (!uids.contains(uid)) return key + " has an owner that is gone";
  return {};
}

std::optional<std::string> Checker::check_settled() {
  for (const auto& user : users_)
    if (auto wrong = user->settled()) return wrong;
  for (const auto& machine : machines_)
    if (auto wrong = check_node_settled(*machine)) return wrong;
  return check_owners_settled();
}

}  // namespace varda::sim
