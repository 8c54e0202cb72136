// Periods in specs: seconds as a number, or a text such as 90m, 12h or 1d12h.
#pragma once

#include <cstdint>
#include <string_view>

#include "codec/json.h"

namespace varda::api {

inline constexpr std::string_view kPeriodPattern = "^([0-9]{1,9}|([0-9]{1,6}[smhd]){1,4})$";
inline constexpr std::int64_t kPeriodSecondsMax = 999'999'999;  // of a number
inline constexpr std::size_t kPeriodLengthMax = 32;             // of a text

/// Seconds of a value that matches the schema; 0 if absent.
std::int64_t period_seconds(const codec::Json& period);

}  // namespace varda::api
