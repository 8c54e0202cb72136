// As much of CEL (the Common Expression Language, cel.dev) as the rules of our CRDs are written in: enough to ask what a cluster's
// API server would find, where there is none. Members, comparisons, && || !, in, has(), size(), and of strings and lists matches(),
// all(), exists() and exists_one().
#pragma once

#include <optional>
#include <string_view>

#include "codec/json.h"

namespace varda::conformance {

/// What the rule says of `self`; nothing: evaluation fails, which an API server takes as a broken rule. CHECKs that the text is one
/// that this can read.
std::optional<bool> evaluate_cel(std::string_view rule, const codec::Json& self);

}  // namespace varda::conformance
