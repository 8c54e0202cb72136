#include "controllers/joint/index.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "codec/json.h"
#include "controllers/joint/plan.h"
#include "controllers/joint/tier.h"
#include "hosting/node_limits.h"
#include "net/url.h"

namespace varda::controllers::joint {

namespace {

using Keys = JointIndex::Keys;

std::uint64_t hash(const std::string& text) { return std::hash<std::string>{}(text); }

template <typename Map, typename Key>
void drop(Map& map, const Key& key, const meta::ObjectKey& service) {
  const auto found = map.find(key);
  if (found == map.end()) return;
  found->second.erase(service);
  if (found->second.empty()) map.erase(found);
}

constexpr std::string_view kOwnerPrefix = "JointInferenceService ";
std::string owner_of(const meta::ObjectKey& service) {
  return std::string(kOwnerPrefix) + service.str();
}
std::optional<meta::ObjectKey> service_of_owner(const std::string& owner) {
  const std::size_t slash = owner.find('/');
  if (!owner.starts_with(kOwnerPrefix) || slash == std::string::npos) return {};
  return meta::ObjectKey{owner.substr(kOwnerPrefix.size(), slash - kOwnerPrefix.size()),
                         owner.substr(slash + 1)};
}

std::vector<hosting::PortClaim> known_claims(const api::JointInferenceService& service) {
  std::vector<hosting::PortClaim> claims;
  const auto add = [&](const std::string& node, std::int64_t port, bool held) {
    claims.push_back({.node = node,
                      .port = port,
                      .owner = owner_of(service.metadata.key()),
                      .uid = service.metadata.uid,
                      .since = service.metadata.creation_timestamp,
                      .held = held});
  };
  for (const api::JointEndpoint& endpoint : service.status.endpoints) {
    const auto url = net::Url::parse(endpoint.url);
    if (url.ok()) add(endpoint.node, url->port, endpoint.ready);
  }
  return claims;
}

// The service of a model's key in EdgeNode, which is NAMESPACE/NAME.WORKER.
meta::ObjectKey service_of_model(const std::string& key) {
  const std::size_t slash = key.find('/'), dot = key.find('.');
  if (slash == std::string::npos || dot == std::string::npos || dot < slash) return {};
  return {key.substr(0, slash), key.substr(slash + 1, dot - slash - 1)};
}

// Hash of the node's facts that affect every service there.
std::uint64_t facts_of(const api::EdgeNode& node) {
  std::string text = node.status.model_root + "\n" + node.status.worker_root + "\n" +
                     node.status.worker_socket_directory + "\n" + node.status.address + "\n" +
                     node.metadata.deletion_timestamp.value_or("") + node.metadata.uid;
  if (const meta::Condition* connected = meta::find_condition(node.status.conditions, "Connected"))
    text += "\n" + connected->status + connected->reason + connected->message;
  // A service that a full list left out gets no other notice.
  if (node.spec.models.size() >= hosting::kModelsPerNode) text += "\nmodels full";
  if (node.spec.workers.size() >= hosting::kWorkersPerNode) text += "\nworkers full";
  return hash(text);
}

std::uint64_t facts_of(const api::Node& node) {
  std::string text = node.metadata.uid + node.metadata.deletion_timestamp.value_or("");
  for (const auto& [key, value] : node.metadata.labels) text += "\n" + key + "=" + value;
  for (const api::NodeAddress& address : node.status.addresses)
    text += "\n" + address.type + address.address;
  if (const api::CoreCondition* ready = find_condition(node.status.conditions, "Ready"))
    text += "\n" + ready->status + ready->reason + ready->message;
  return hash(text);
}

}  // namespace

void JointIndex::forget(const meta::ObjectKey& key) {
  const auto found = services_.find(key);
  if (found == services_.end()) return;
  const Entry& entry = found->second;
  for (const meta::ObjectKey& model : entry.models) drop(by_model_, model, key);
  for (const std::string& node : entry.nodes) drop(by_node_, node, key);
  every_node_.erase(key);
  drop(first_by_node_, entry.first_node, key);
  first_anywhere_.erase(key);
  by_uid_.erase(entry.uid);
  services_.erase(found);
}

void JointIndex::set(const meta::ObjectKey& key, const api::JointInferenceService* service) {
  const MutexLock lock(mutex_);
  if (const auto known = services_.find(key); known != services_.end() && service != nullptr) {
    // Most changes touch only the status.
    const auto& endpoints = service->status.endpoints;
    const bool same = service->metadata.generation != 0 &&
                      known->second.uid == service->metadata.uid &&
                      known->second.generation == service->metadata.generation &&
                      std::equal(endpoints.begin(), endpoints.end(),
                                 known->second.endpoints.begin(), known->second.endpoints.end(),
                                 [](const api::JointEndpoint& one, const std::string& node) {
                                   return one.node == node;
                                 });
    if (same) return;
  }
  forget(key);
  if (service == nullptr) {
    claim(owner_of(key), {});
    waiting_.erase(key);
    return;
  }
  const std::vector<Tier> tiers = tiers_of(*service);
  Entry entry;
  entry.uid = service->metadata.uid;
  entry.generation = service->metadata.generation;
  for (const Tier& tier : tiers) {
    entry.models.insert({key.ns, tier.model->name});
    entry.models.insert({key.ns, key.name + "-" + tier.name});
  }
  for (std::string& node : named_nodes(tiers)) entry.nodes.insert(std::move(node));
  entry.every_node = affects_every_node(tiers);
  if (!tiers.empty()) {
    entry.first_node = tiers.front().node;
    entry.first_anywhere = entry.first_node.empty();
  }
  // The nodes of former pods still affect a service that was moved.
  for (const api::JointEndpoint& endpoint : service->status.endpoints) {
    entry.nodes.insert(endpoint.node);
    entry.endpoints.push_back(endpoint.node);
  }
  for (const meta::ObjectKey& model : entry.models) by_model_[model].insert(key);
  for (const std::string& node : entry.nodes) by_node_[node].insert(key);
  if (entry.every_node) every_node_.insert(key);
  if (entry.first_anywhere) {
    first_anywhere_.insert(key);
  } else if (!entry.first_node.empty()) {
    first_by_node_[entry.first_node].insert(key);
  }
  by_uid_[entry.uid] = key;
  services_[key] = std::move(entry);
  if (!claims_.contains(owner_of(key))) claim(owner_of(key), known_claims(*service));
}

Keys JointIndex::set(const meta::ObjectKey& key, const api::InferenceModel* model) {
  const std::string owner = "InferenceModel " + key.str();
  std::vector<hosting::PortClaim> claims;
  if (model != nullptr && model->spec.on_edge() && model->spec.replicas > 0) {
    const std::string& node =
        model->spec.node_name.empty() ? model->status.node : model->spec.node_name;
    // A child's port belongs to its service.
    const meta::OwnerReference* parent = model->metadata.controller();
    const auto url = net::Url::parse(model->status.url);
    if (!node.empty()) {
      claims.push_back(
          {.node = node,
           .port = model->spec.port(),
           .owner = owner,
           .uid = parent != nullptr ? parent->uid : model->metadata.uid,
           .since = model->metadata.creation_timestamp,
           .held = url.ok() && url->port == model->spec.port() && model->status.node == node});
    }
  }
  {
    const MutexLock lock(mutex_);
    claim(owner, std::move(claims));
  }
  return woken();
}

Keys JointIndex::woken() {
  const MutexLock lock(mutex_);
  const Keys keys(woken_.begin(), woken_.end());
  woken_.clear();
  return keys;
}

void JointIndex::wake(const std::string& owner, const std::vector<hosting::PortClaim>& before,
                      const std::vector<hosting::PortClaim>& now) {
  const auto has = [](const std::vector<hosting::PortClaim>& all, const hosting::PortClaim& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  };
  std::set<std::string> left;
  for (const hosting::PortClaim& one : before) {
    if (!has(now, one)) left.insert(one.node);
  }
  for (const auto& [service, on] : waiting_) {
    if (left.empty()) break;
    if (owner_of(service) != owner &&
        std::any_of(on.begin(), on.end(), [&](const auto& node) { return left.contains(node); }))
      woken_.insert(service);
  }
  for (const hosting::PortClaim& one : now) {
    const auto there = claims_by_node_.find(one.node);
    if (there == claims_by_node_.end() || has(before, one)) continue;
    for (const std::string& other : there->second) {
      const auto service = service_of_owner(other);
      if (other == owner || !service) continue;
      const std::vector<hosting::PortClaim>& wants = claims_.at(other);
      if (std::any_of(wants.begin(), wants.end(), [&](const hosting::PortClaim& want) {
            return want.node == one.node && want.port == one.port &&
                   want.protocol == one.protocol && want.uid != one.uid;
          }))
        woken_.insert(*service);
    }
  }
}

void JointIndex::claim(const std::string& owner, std::vector<hosting::PortClaim> claims) {
  const auto before = claims_.find(owner);
  if (before == claims_.end() ? claims.empty() : before->second == claims) return;
  wake(owner, before == claims_.end() ? std::vector<hosting::PortClaim>{} : before->second, claims);
  if (before != claims_.end()) {
    for (const hosting::PortClaim& one : before->second) {
      const auto there = claims_by_node_.find(one.node);
      if (there == claims_by_node_.end()) continue;
      there->second.erase(owner);
      if (there->second.empty()) claims_by_node_.erase(there);
    }
    claims_.erase(before);
  }
  if (claims.empty()) return;
  for (const hosting::PortClaim& one : claims) claims_by_node_[one.node].insert(owner);
  claims_[owner] = std::move(claims);
}

void JointIndex::set_claims(const meta::ObjectKey& service,
                            std::vector<hosting::PortClaim> claims) {
  const MutexLock lock(mutex_);
  claim(owner_of(service), std::move(claims));
}

void JointIndex::set_waiting(const meta::ObjectKey& service, std::vector<std::string> nodes) {
  const MutexLock lock(mutex_);
  if (nodes.empty()) {
    waiting_.erase(service);
  } else {
    waiting_[service] = std::move(nodes);
  }
}

std::vector<hosting::PortClaim> JointIndex::claims_on(const std::vector<std::string>& nodes,
                                                      const std::string& but_uid) const {
  const MutexLock lock(mutex_);
  std::vector<hosting::PortClaim> out;
  for (const std::string& node : nodes) {
    const auto owners = claims_by_node_.find(node);
    if (owners == claims_by_node_.end()) continue;
    for (const std::string& owner : owners->second) {
      for (const hosting::PortClaim& one : claims_.at(owner)) {
        if (one.node == node && one.uid != but_uid) out.push_back(one);
      }
    }
  }
  return out;
}

Keys JointIndex::of_model(const meta::ObjectKey& model) const {
  const MutexLock lock(mutex_);
  const auto found = by_model_.find(model);
  return found == by_model_.end() ? Keys{} : Keys(found->second.begin(), found->second.end());
}

Keys JointIndex::of_node_locked(const std::string& node) const {
  Keys keys(every_node_.begin(), every_node_.end());
  if (const auto found = by_node_.find(node); found != by_node_.end()) {
    for (const meta::ObjectKey& key : found->second) {
      if (!every_node_.contains(key)) keys.push_back(key);
    }
  }
  return keys;
}

Keys JointIndex::of_node(const std::string& node) const {
  const MutexLock lock(mutex_);
  return of_node_locked(node);
}

Keys JointIndex::first_on(const std::string& node) const {
  const MutexLock lock(mutex_);
  Keys keys(first_anywhere_.begin(), first_anywhere_.end());
  if (const auto found = first_by_node_.find(node); found != first_by_node_.end())
    keys.insert(keys.end(), found->second.begin(), found->second.end());
  if (const auto found = pods_by_node_.find(node); found != pods_by_node_.end()) {
    for (const auto& [pod, service] : found->second) keys.push_back(service);
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  }
  return keys;
}

bool JointIndex::any_node_is_first() const {
  const MutexLock lock(mutex_);
  return !first_anywhere_.empty();
}

void JointIndex::set_pod(const meta::ObjectKey& pod, const meta::ObjectKey& service,
                         const std::string& node) {
  const MutexLock lock(mutex_);
  if (const auto before = node_of_pod_.find(pod); before != node_of_pod_.end()) {
    if (before->second == node) return;
    drop(pods_by_node_, before->second, pod);
    node_of_pod_.erase(before);
  }
  if (node.empty()) return;
  pods_by_node_[node][pod] = service;
  node_of_pod_[pod] = node;
}

std::pair<bool, std::string> JointIndex::first_node(const meta::ObjectKey& service) const {
  const MutexLock lock(mutex_);
  const auto found = services_.find(service);
  if (found == services_.end()) return {true, ""};
  return {!found->second.first_anywhere, found->second.first_node};
}

Keys JointIndex::changes_of(const std::string& name, const api::EdgeNode* node) {
  LastReport words;
  if (node != nullptr) {
    words.facts = facts_of(*node);
    // The hash covers the whole JSON, so a member added to reports later counts too.
    const codec::Json status = node->status.to_json();
    for (const codec::Json& report : status["models"].as_array()) {
      const std::string& key = report["key"].as_string();
      if (key.find('.') != std::string::npos) words.reports[key] = hash(codec::write_json(report));
    }
    // The node's work list decides the meaning of its reports.
    const codec::Json spec = node->spec.to_json();
    for (const codec::Json& model : spec["models"].as_array()) {
      const std::string& key = model["key"].as_string();
      if (key.find('.') != std::string::npos)
        words.reports[key] ^= hash(codec::write_json(model)) * 31;
    }
    for (const codec::Json& report : status["workers"].as_array())
      words.reports[report["uid"].as_string()] ^= hash(codec::write_json(report));
    for (const codec::Json& worker : spec["workers"].as_array())
      words.reports[worker["uid"].as_string()] ^= hash(worker["key"].as_string()) * 31;
  }
  const MutexLock lock(mutex_);
  const auto before = agents_.find(name);
  const bool known = before != agents_.end();
  if (node == nullptr || !known || before->second.facts != words.facts) {
    if (node != nullptr) {
      agents_[name] = std::move(words);
    } else if (known) {
      agents_.erase(before);
    } else {
      return {};
    }
    return of_node_locked(name);
  }
  std::set<meta::ObjectKey> keys;
  const auto add = [&](const std::string& key) REQUIRES(mutex_) {
    if (const auto found = by_uid_.find(key); found != by_uid_.end()) keys.insert(found->second);
    if (const meta::ObjectKey service = service_of_model(key); services_.contains(service))
      keys.insert(service);
  };
  for (const auto& [key, value] : words.reports) {
    const auto old = before->second.reports.find(key);
    if (old == before->second.reports.end() || old->second != value) add(key);
  }
  for (const auto& [key, value] : before->second.reports) {
    if (!words.reports.contains(key)) add(key);
  }
  before->second = std::move(words);
  return {keys.begin(), keys.end()};
}

Keys JointIndex::changes_of(const std::string& name, const api::Node* node) {
  const std::uint64_t facts = node == nullptr ? 0 : facts_of(*node);
  const MutexLock lock(mutex_);
  const auto before = nodes_.find(name);
  if (before == nodes_.end() ? node == nullptr : (node != nullptr && before->second == facts))
    return {};
  if (node == nullptr) {
    nodes_.erase(before);
  } else {
    nodes_[name] = facts;
  }
  return of_node_locked(name);
}

}  // namespace varda::controllers::joint
