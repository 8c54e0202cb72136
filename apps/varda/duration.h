// Lengths of time as flags take them: "30s", "5m", "1h", "250ms"; a bare number is seconds.
#pragma once

#include <chrono>
#include <string>

#include "base/result.h"

namespace varda::app {

/// Rounded to milliseconds, and up to one of them. kInvalid names the flag: no such time, or one beyond 31 years.
Result<std::chrono::milliseconds> parse_duration(const std::string& flag, const std::string& text);

}  // namespace varda::app
