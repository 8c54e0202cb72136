// Problems of pods and nodes, as reasons and messages of conditions. Pure; shared by the kinds that
// make pods.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "api/core/node.h"
#include "api/core/pod.h"
#include "api/edgeai/edge_node.h"
#include "hosting/placement.h"

namespace varda::hosting {

/// The reported reason why a pod is not ready: from the scheduler, the node, or its ended
/// containers.
std::optional<Problem> pod_problem(const api::Pod& pod);

/// The reason why reports of node `name` are out of date: NodeUnreachable, NodeNotReady. `node` and
/// `agent` may be null: no report to check.
std::optional<Problem> out_of_reach(const std::string& name, const api::Node* node,
                                    const api::EdgeNode* agent);

/// True: the node's connected agent reports that the pod's server answers. The cluster's own view
/// of pod and node may be late or waver. KubeEdge reports an answering pod as not ready for a
/// moment after its start. It reports a node as lost for most of a minute after its link and agent
/// are back. For servers that answered before only. `pod`, `agent`, `report` may be null.
bool agent_vouches(const api::Pod* pod, const api::EdgeNode* agent,
                   const api::EdgeModelReport* report);

/// Address of a pod with its node's network, or with ports of its node; "": not known yet. `pod`
/// null: the address that it would have.
enum class Machines {
  kOne,  // pods answer at their own addresses, and not at host ports
  kMany,
};
std::string pod_address(const api::Pod* pod, const api::EdgeNode* agent, const api::Node* node,
                        Machines machines);

/// "http://192.0.2.7:8080", "http://[2001:db8::7]:8080"
std::string http_url(const std::string& host, std::int64_t port);
/// True: the server was made to answer HTTPS, by the scheme of its readiness probe.
bool answers_https(const api::Container& server);
/// "http://a:1" as "https://a:1" if `https`. "" stays "".
std::string with_scheme(std::string http_url, bool https);

}  // namespace varda::hosting
