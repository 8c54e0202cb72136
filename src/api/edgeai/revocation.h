// The mark of a node that was lost or stolen, on its EdgeNode: whoever deals with other nodes leaves such a one out.
#pragma once

#include <string>
#include <string_view>

#include "meta/object.h"

namespace varda::api {

inline constexpr std::string_view kRevokedAnnotation = "edgeai.io/revoked";

/// By the metadata of its EdgeNode.
inline bool is_revoked(const meta::ObjectMeta& edge_node) {
  const auto mark = edge_node.annotations.find(std::string(kRevokedAnnotation));
  return mark != edge_node.annotations.end() && mark->second == "true";
}

}  // namespace varda::api
