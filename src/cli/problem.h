// Rewrites API server errors, with the cause first.
#pragma once

#include "base/result.h"

namespace varda::cli {

/// Removes the quoted object with which Kubernetes begins errors about a patch. Adds a hint if a
/// number stands where a string is expected: probably a YAML value without quotes. Code and
/// terminal stay.
Error readable(const Error& error);

}  // namespace varda::cli
