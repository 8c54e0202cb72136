// Which Secrets and ConfigMaps a Pod and an EdgeNode name: what entitles a node to read them, whoever asks it, an API server or a
// gateway before it.
#pragma once

#include <string>
#include <string_view>

#include "codec/json.h"
#include "meta/object.h"

namespace varda::meta {

/// The label of a namespace that lets its Secrets go to nodes as credentials of archives, and its value.
inline constexpr const char* kEdgeSecretsLabel = "edgeai.io/edge-secrets";
inline constexpr const char* kEdgeSecretsAllow = "allow";

/// `resource` is secrets or configmaps; `name` is of one in the namespace of the Pod.
bool pod_uses(const codec::Json& pod, std::string_view resource, std::string_view name);

/// As the credentials of an archive.
bool edge_node_uses(const codec::Json& edge_node, const ObjectKey& secret);

}  // namespace varda::meta
