// Finds the Secrets and ConfigMaps that a Pod or an EdgeNode names. These references entitle a node
// to read them, through an API server or a gateway.
#pragma once

#include <string>
#include <string_view>

#include "codec/json.h"
#include "meta/object.h"

namespace varda::meta {

/// Namespace label, and its value, that allows nodes to read Secrets there as archive credentials.
inline constexpr const char* kEdgeSecretsLabel = "edgeai.io/edge-secrets";
inline constexpr const char* kEdgeSecretsAllow = "allow";

/// `resource` is secrets or configmaps; `name` is in the Pod's namespace.
bool pod_uses(const codec::Json& pod, std::string_view resource, std::string_view name);

/// True if the EdgeNode names the Secret as credentials of an archive or of a worker's bucket.
bool edge_node_uses(const codec::Json& edge_node, const ObjectKey& secret);

}  // namespace varda::meta
