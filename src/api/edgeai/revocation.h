// The mark of a lost or stolen node, on its EdgeNode. Code that works with other nodes must skip
// such a node.
#pragma once

#include <string>
#include <string_view>

#include "meta/object.h"

namespace varda::api {

inline constexpr std::string_view kRevokedAnnotation = "edgeai.io/revoked";

/// `edge_node`: metadata of the node's EdgeNode.
inline bool is_revoked(const meta::ObjectMeta& edge_node) {
  const auto mark = edge_node.annotations.find(std::string(kRevokedAnnotation));
  return mark != edge_node.annotations.end() && mark->second == "true";
}

}  // namespace varda::api
