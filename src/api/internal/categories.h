// Categories of kinds: names for several kinds at once, as in `kubectl get edgeai`.
#pragma once

#include <string>
#include <vector>

#include "api/kind.h"

namespace varda::api::internal {

/// `kubectl get all` also shows the kinds that answer requests.
inline std::vector<std::string> categories_of(const Kind& kind) {
  const std::string& name = kind.resource.kind;
  if (name == "InferenceModel" || name == "JointInferenceService") return {"edgeai", "all"};
  return {"edgeai"};
}

}  // namespace varda::api::internal
