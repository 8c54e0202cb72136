// Lengths of time as flags take them: "30s", "5m", "1h", "250ms"; a bare number is seconds.
#pragma once

#include <chrono>
#include <string>

#include "base/result.h"

namespace varda::app {

/// kInvalid names the flag.
Result<std::chrono::milliseconds> parse_duration(const std::string& flag, const std::string& text);

}  // namespace varda::app
