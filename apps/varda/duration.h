// Durations in flags: "30s", "5m", "1h", "250ms"; a bare number means seconds.
#pragma once

#include <chrono>
#include <string>

#include "base/result.h"

namespace varda::app {

/// Rounds to milliseconds; a positive duration becomes at least 1 ms. kInvalid: `text` is no
/// duration, or longer than 31 years. The message names the flag.
Result<std::chrono::milliseconds> parse_duration(const std::string& flag, const std::string& text);

}  // namespace varda::app
