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

/// "http://192.0.2.7:8080", "http://[2001:db8::7]:8080"
std::string http_url(const std::string& host, std::int64_t port);

}  // namespace varda::controllers
