// Why pods and nodes do not answer, in the words of conditions. Pure; shared by the kinds that make pods.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "api/core/node.h"
#include "api/core/pod.h"
#include "api/edgeai/edge_node.h"
#include "controllers/inferencemodel/placement.h"

namespace varda::controllers {

/// Why a pod is not ready, where somebody said so: the scheduler, the node, or how its containers ended.
std::optional<Problem> pod_problem(const api::Pod& pod);

/// Why nothing that is heard of node `name` is of now: NodeUnreachable, NodeNotReady. Null for `node`, `agent`: nobody to ask.
std::optional<Problem> out_of_reach(const std::string& name, const api::Node* node, const api::EdgeNode* agent);

/// Whether the pod's server answers, as the node's agent reads it and can tell at once. It is news where the cluster's own word of
/// pod and node is late or wavers: KubeEdge calls a pod that answers not ready for a moment after its start, and a node lost for
/// most of a minute after its link and agent are back. Of who answered before only; `pod`, `agent`, `report` may be null.
bool agent_vouches(const api::Pod* pod, const api::EdgeNode* agent, const api::EdgeModelReport* report);

/// Where a pod with the node's network, or with ports of its node, is reached; "": nobody knows yet. `pod` null: where it would be.
enum class Machines {
  kOne,  // where a pod's own address answers everybody, and its host port nobody
  kMany,
};
std::string pod_address(const api::Pod* pod, const api::EdgeNode* agent, const api::Node* node, Machines machines);

/// "http://192.0.2.7:8080", "http://[2001:db8::7]:8080"
std::string http_url(const std::string& host, std::int64_t port);
/// Whether a server was made to answer HTTPS, which the scheme of its readiness probe says.
bool answers_https(const api::Container& server);
/// "http://a:1" as "https://a:1" if `https`. "" stays "".
std::string with_scheme(std::string http_url, bool https);

}  // namespace varda::controllers
