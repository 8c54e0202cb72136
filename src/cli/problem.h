// Errors of the API server, with the cause first.
#pragma once

#include "base/result.h"

namespace varda::cli {

/// Kubernetes quotes the whole object before it says what is wrong with a patch: the quote is left out. A number where a string is
/// expected was most likely written without quotes in YAML: the message says so. Code and terminal stay.
Error readable(const Error& error);

}  // namespace varda::cli
