#include "controllers/joint/ports.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "controllers/inferencemodel/inferencemodel.h"
#include "controllers/joint/plan.h"
#include "controllers/joint/tier.h"

namespace varda::controllers::joint {

namespace {

using api::JointInferenceService;
using hosting::PortClaim;
using meta::ObjectKey;

// The nodes where the service's first tier may be. A layer means its nodes with an agent.
hosting::NodeList nodes_of_claims(const Tier& tier, const std::vector<std::string>& names,
                                  const std::vector<workers::PodPtr>& pods,
                                  const runtime::Caches& caches) {
  const auto all = caches.of<api::Node>();
  hosting::NodeList nodes;
  if (tier.node.empty() && all.size() > nodes_max(tier)) return nodes;
  for (const std::string& name : names) {
    if (!tier.node.empty() && tier.node != name) continue;
    const bool by_layer = tier.node.empty() && tier.selector == nullptr;
    if (by_layer && caches.of<api::EdgeNode>().get({"", name}) == nullptr &&
        std::none_of(pods.begin(), pods.end(),
                     [&](const workers::PodPtr& pod) { return pod->spec.node_name == name; }))
      continue;
    if (auto node = all.get({"", name})) nodes.push_back(std::move(node));
  }
  return nodes;
}

std::int64_t port_of(const JointInferenceService& service, const Tier& tier,
                     const std::vector<workers::PodPtr>& pods, const runtime::Caches& caches) {
  if (tier.has_template()) return 0;
  if (service.spec.serving_port != 0) return service.spec.serving_port;
  const workers::Worker worker = placed_worker(tier);
  if (const std::int64_t port = known_port(service, worker, pods); port != 0) return port;
  // Pods on other nodes have the same port.
  return known_port(service, worker, caches.of<api::Pod>().owned_by(service.metadata.uid));
}

bool waits_for_port(const JointInferenceService& service) {
  return std::any_of(
      service.status.conditions.begin(), service.status.conditions.end(),
      [](const meta::Condition& condition) { return condition.reason == "PortInUse"; });
}

// Services, except the one with the uid, that want one of the ports, or wait for any port, on a
// node of the claims.
Keys rivals(const std::vector<PortClaim>& claims, const runtime::Caches& caches) {
  std::set<ObjectKey> keys;
  std::map<std::string, std::vector<PortClaim>> known;  // by node
  const auto services = caches.of<JointInferenceService>();
  for (const PortClaim& claim : claims) {
    const auto [at, is_new] = known.try_emplace(claim.node);
    if (is_new) at->second = claims_on({claim.node}, caches);
    for (const PortClaim& other : at->second) {
      if (other.uid == claim.uid || other.port != claim.port || other.protocol != claim.protocol)
        continue;
      for (const auto& service : services.by_index(kByUid, other.uid))
        keys.insert(service->metadata.key());
    }
    for (const ObjectKey& key : first_on(claim.node, caches)) {
      const auto service = services.get(key);
      if (service != nullptr && service->metadata.uid != claim.uid && waits_for_port(*service))
        keys.insert(key);
    }
  }
  return {keys.begin(), keys.end()};
}

std::vector<PortClaim> claims_of_pod(const api::Pod& pod) {
  const meta::OwnerReference* owner = pod.metadata.controller();
  if (pod.spec.node_name.empty() || pod.ended() || owner == nullptr) return {};
  std::vector<PortClaim> claims;
  for (const hosting::HostPort& port : hosting::host_ports(pod.spec))
    claims.push_back({.node = pod.spec.node_name,
                      .port = port.port,
                      .protocol = port.protocol,
                      .uid = owner->uid});
  return claims;
}

}  // namespace

std::vector<PortClaim> claims_of(const JointInferenceService& service,
                                 const hosting::NodeList& nodes,
                                 const std::vector<workers::PodPtr>& pods, std::int64_t port) {
  const std::vector<Tier> tiers = tiers_of(service);
  if (tiers.size() < 2) return {};
  workers::Worker worker = placed_worker(tiers.front());
  if (worker.pods == workers::Worker::Pods::kServer && port != 0) {
    worker.server_spec = [port](const std::string& /*directory*/, const std::string& /*samples*/) {
      const Json ports = Json::array({Json::object({{"containerPort", port}})});
      return Json::object(
          {{"hostNetwork", true}, {"containers", Json::array({Json::object({{"ports", ports}})})}});
    };
  }
  return workers::claims_of(job_of(service), worker, nodes, pods);
}

std::vector<PortClaim> claims_on(const std::vector<std::string>& nodes,
                                 const runtime::Caches& caches) {
  const auto services = caches.of<JointInferenceService>();
  std::map<ObjectKey, std::vector<workers::PodPtr>> pods;  // of all services on the nodes
  for (const std::string& node : nodes) {
    for (const ObjectKey& key : first_on(node, caches)) pods[key];
    for (auto& pod : caches.of<api::Pod>().by_index(kPodsOn, node)) {
      for (const ObjectKey& key : service_of(*pod)) pods[key].push_back(pod);
    }
  }
  std::vector<PortClaim> claims;
  for (const auto& [key, present] : pods) {
    const auto service = services.get(key);
    if (service == nullptr) continue;
    const std::vector<Tier> tiers = tiers_of(*service);
    if (tiers.empty()) continue;
    const Tier& first = tiers.front();
    for (PortClaim& claim : claims_of(*service, nodes_of_claims(first, nodes, present, caches),
                                      present, port_of(*service, first, present, caches)))
      claims.push_back(std::move(claim));
  }
  return claims;
}

std::vector<PortClaim> claims_of_others(const std::vector<std::string>& nodes,
                                        const std::string& uid, const runtime::Caches& caches) {
  std::vector<PortClaim> claims = claims_on(nodes, caches);
  for (const std::string& node : nodes) {
    for (const auto& model :
         caches.of<api::InferenceModel>().by_index(inferencemodel::kByNode, node)) {
      if (auto claim = inferencemodel::port_claim(*model); claim && claim->node == node)
        claims.push_back(std::move(*claim));
    }
  }
  std::erase_if(claims, [&](const PortClaim& claim) { return claim.uid == uid; });
  return claims;
}

Keys port_changed_by(const api::InferenceModel* before, const api::InferenceModel* now,
                     const runtime::Caches& caches) {
  std::vector<PortClaim> claims;
  for (const api::InferenceModel* model : {before, now}) {
    if (model == nullptr) continue;
    if (auto claim = inferencemodel::port_claim(*model)) claims.push_back(std::move(*claim));
  }
  if (claims.size() == 2 && claims[0] == claims[1]) return {};
  return rivals(claims, caches);
}

Keys port_changed_by(const api::Pod* before, const api::Pod* now, const runtime::Caches& caches) {
  if (service_of(now != nullptr ? *now : *before).empty()) return {};
  // The ports of a pod never change.
  if (before != nullptr && now != nullptr && before->metadata.uid == now->metadata.uid &&
      before->spec.node_name == now->spec.node_name && before->ended() == now->ended())
    return {};
  std::vector<PortClaim> claims;
  for (const api::Pod* pod : {before, now}) {
    if (pod == nullptr) continue;
    for (PortClaim& claim : claims_of_pod(*pod)) claims.push_back(std::move(claim));
  }
  return rivals(claims, caches);
}

Keys port_changed_by(const JointInferenceService* before, const JointInferenceService* now,
                     const runtime::Caches& caches) {
  if (before != nullptr && now != nullptr && before->metadata.uid == now->metadata.uid &&
      before->metadata.generation == now->metadata.generation &&
      before->metadata.deleting() == now->metadata.deleting() &&
      nodes_by_name(*before) == nodes_by_name(*now))
    return {};
  std::set<std::string> nodes;
  for (const JointInferenceService* service : {before, now}) {
    if (service == nullptr) continue;
    for (std::string& node : nodes_by_name(*service)) nodes.insert(std::move(node));
  }
  const std::string& uid = (now != nullptr ? now : before)->metadata.uid;
  std::vector<PortClaim> claims = claims_on({nodes.begin(), nodes.end()}, caches);
  std::erase_if(claims, [&](const PortClaim& claim) { return claim.uid != uid; });
  // Services that wait for any port there: the claims of an earlier version are unknown.
  for (const std::string& node : nodes) claims.push_back({.node = node, .uid = uid});
  return rivals(claims, caches);
}

}  // namespace varda::controllers::joint
