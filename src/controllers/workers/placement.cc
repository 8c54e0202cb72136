// Placement of a worker's pods: nodes, names and ports.

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "codec/digest.h"
#include "controllers/workers/workers.h"
#include "hosting/node_index.h"

namespace varda::controllers::workers {

Worker worker_of(std::string name, Worker::Layer layer, const api::Worker& spec) {
  Worker worker;
  worker.name = std::move(name);
  worker.layer = layer;
  worker.node_name = spec.node();
  worker.selector = spec.selector;
  set_replicas(worker, spec.replicas);
  worker.pod_spec = spec.pod_spec();
  worker.pod_metadata = spec.pod_metadata();
  return worker;
}

std::vector<std::string> selection_values(const api::NodeSelection& selection) {
  if (!selection.match_labels.empty()) return hosting::selector_values(selection.match_labels);
  for (const api::SelectorRequirement& requirement : selection.match_expressions) {
    if (requirement.op == "Exists") return {requirement.key};
    if (requirement.op != "In" || requirement.values.empty()) continue;
    std::vector<std::string> labels;
    for (const std::string& value : requirement.values)
      labels.push_back(requirement.key + "=" + value);
    std::sort(labels.begin(), labels.end());
    labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
    return labels;
  }
  return {""};
}

void set_replicas(Worker& worker, std::optional<std::int64_t> replicas) {
  worker.replicas = replicas.value_or(1);
  worker.nodes_wanted.reset();
  if (worker.layer != Worker::Layer::kEdge || !worker.selector || !replicas) return;
  worker.replicas = std::min<std::int64_t>(*replicas, 1);
  if (*replicas > 0) worker.nodes_wanted = static_cast<std::size_t>(*replicas);
}

std::size_t nodes_max(const Worker& worker) {
  return std::min(worker.nodes_wanted.value_or(kNodesPerWorkerMax), kNodesPerWorkerMax);
}

bool joined_before(const api::Node& a, const api::Node& b) {
  return std::tie(a.metadata.creation_timestamp, a.metadata.name) <
         std::tie(b.metadata.creation_timestamp, b.metadata.name);
}

WorkerNodes nodes_of(const Worker& worker, const hosting::NodeList& nodes) {
  if (!worker.node_name.empty()) {
    if (hosting::find_node(nodes, worker.node_name) != nullptr) return {{worker.node_name}, {}};
    return {{}, hosting::Problem{"NodeNotFound", "node " + worker.node_name + " does not exist"}};
  }
  if (!worker.selector)
    return {{},
            hosting::Problem{"InvalidSpec",
                             "worker " + worker.name + " has neither nodeName nor selector"}};
  const auto selector = worker.selector->compiled();
  if (!selector.ok())
    return {{},
            hosting::Problem{"InvalidSpec", "selector of worker " + worker.name + ": " +
                                                selector.error().message()}};
  std::vector<const api::Node*> matching;
  for (const auto& node : nodes) {
    if (!worker.node_layer.empty() && hosting::layer_of(*node) != worker.node_layer) continue;
    if (selector->matches(node->metadata.labels)) matching.push_back(node.get());
  }
  if (matching.empty()) {
    const std::string text = selector->str();
    if (!worker.node_layer.empty())
      return {{},
              hosting::Problem{"NoNodeMatches",
                               "no node of the layer " + worker.node_layer + " runs an agent"}};
    return {
        {},
        hosting::Problem{"NoNodeMatches", text.empty() ? "there are no nodes"
                                                       : "no node matches the selector " + text}};
  }
  WorkerNodes out;
  const std::size_t most = nodes_max(worker);
  if (worker.nodes_wanted && matching.size() < most) {
    out.problem = hosting::Problem{
        "TooFewNodes", "replicas is " + std::to_string(*worker.nodes_wanted) + ", but only " +
                           std::to_string(matching.size()) +
                           (matching.size() == 1 ? " node matches" : " nodes match") +
                           " the selector: one replica runs on a node"};
  }
  if (!worker.nodes_wanted && matching.size() > most) {
    const std::string which =
        worker.node_layer.empty() ? "match the selector" : "are of the layer " + worker.node_layer;
    out.problem = hosting::Problem{
        "TooManyNodes", std::to_string(matching.size()) + " nodes " + which +
                            ", but a worker runs on at most " + std::to_string(most) +
                            ", those that joined first: " + std::to_string(matching.size() - most) +
                            " nodes have no worker; split the nodes between several jobs"};
  }
  if (matching.size() > most) {
    std::sort(matching.begin(), matching.end(),
              [](const auto* a, const auto* b) { return joined_before(*a, *b); });
    matching.resize(most);
  }
  for (const api::Node* node : matching) out.names.push_back(node->metadata.name);
  std::sort(out.names.begin(), out.names.end());
  return out;
}

std::string worker_name(const Job& job, const Worker& worker) {
  return job.metadata.name + "-" + worker.name;
}

std::string worker_pod_name(const Job& job, const Worker& worker, const std::string& node,
                            std::int64_t number) {
  // Derived from the node: a pod that a dead node never releases does not block the name of another
  // node's pod.
  return worker_name(job, worker) + "-" + codec::Sha256::of(node).hex().substr(0, 12) +
         (number == 0 ? "" : "-" + std::to_string(number));
}

std::string worker_model_key(const Job& job, const Worker& worker) {
  return job.metadata.ns + "/" + job.metadata.name + "." + worker.name;
}

bool is_worker_pod(const Job& job, const Worker& worker, const api::Pod& pod) {
  const auto has = [&](std::string_view label, std::string_view value) {
    const auto found = pod.metadata.labels.find(std::string(label));
    return found != pod.metadata.labels.end() && found->second == value;
  };
  if (pod.metadata.ns != job.metadata.ns || !has(kWorkerLabel, worker.name)) return false;
  if (!has(kJobLabel, job.metadata.name) || !has(kJobKindLabel, job.kind)) return false;
  if (worker.layer == Worker::Layer::kCloud) return true;
  const meta::OwnerReference* owner = pod.metadata.controller();
  return owner != nullptr && owner->uid == job.metadata.uid;
}

bool holds_port(const Job& job, const Worker& worker, const std::vector<PodPtr>& pods,
                const std::string& node, const hosting::HostPort& port) {
  return std::any_of(pods.begin(), pods.end(), [&](const PodPtr& pod) {
    if (pod->spec.node_name != node || pod->ended() || !is_worker_pod(job, worker, *pod))
      return false;
    const std::vector<hosting::HostPort> ports = hosting::host_ports(pod->spec);
    return std::find(ports.begin(), ports.end(), port) != ports.end();
  });
}

std::vector<hosting::PortClaim> claims_of(const Job& job, const Worker& worker,
                                          const hosting::NodeList& nodes,
                                          const std::vector<PodPtr>& pods) {
  if (worker.layer != Worker::Layer::kEdge || job.metadata.deleting()) return {};
  std::vector<hosting::PortClaim> claims;
  std::set<std::pair<std::string, hosting::HostPort>> known;
  const auto claim = [&](const std::string& node, const hosting::HostPort& port, bool held) {
    if (!known.emplace(node, port).second) return;
    claims.push_back({node, port.port, port.protocol,
                      std::string(job.kind) + " " + job.metadata.key().str(), job.metadata.uid,
                      job.metadata.creation_timestamp, held});
  };
  // Present ports first: pods of a former port or node stay until they are deleted.
  for (const PodPtr& pod : pods) {
    if (pod->spec.node_name.empty() || pod->ended() || !is_worker_pod(job, worker, *pod)) continue;
    for (const hosting::HostPort& port : hosting::host_ports(pod->spec))
      claim(pod->spec.node_name, port, true);
  }
  const bool users = worker.pods == Worker::Pods::kUsers;
  if (worker.replicas == 0 || (!users && !worker.server_spec)) return claims;
  const std::vector<hosting::HostPort> ports =
      hosting::host_ports(users ? worker.pod_spec : worker.server_spec("", ""));
  if (ports.empty()) return claims;
  for (const std::string& node : nodes_of(worker, nodes).names) {
    for (const hosting::HostPort& port : ports) claim(node, port, false);
  }
  return claims;
}

}  // namespace varda::controllers::workers
