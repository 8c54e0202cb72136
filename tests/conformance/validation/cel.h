// A small evaluator of CEL (Common Expression Language, cel.dev): the subset in the rules of our
// CRDs. Tests use it in place of a cluster's API server. The subset has members, comparisons, && ||
// ! ?:, in, has(), size(), double(), duration(), matches(), all(), exists(), exists_one(), map(),
// filter() and isSorted().
#pragma once

#include <optional>
#include <string_view>

#include "codec/json.h"

namespace varda::conformance {

/// Evaluates the rule on `self`. Nothing: evaluation fails, so an API server reports the rule as
/// broken. CHECK fails if the rule is outside the subset.
std::optional<bool> evaluate_cel(std::string_view rule, const codec::Json& self);

}  // namespace varda::conformance
