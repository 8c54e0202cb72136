// Strategic merge patch: merge patch that knows which lists are maps and sets, for the built-in
// kinds.
#pragma once

#include "apiserver/internal/outcome.h"
#include "apiserver/kind.h"

namespace varda::apiserver {

/// 500 with Kubernetes' message for an invalid patch (missing merge key, unknown directive, order).
Outcome<Json> apply_strategic_patch(const Json& object, const Json& patch, const Kind& kind);

}  // namespace varda::apiserver
