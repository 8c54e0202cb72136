#include "api/period.h"

#include <algorithm>

namespace varda::api {

std::int64_t period_seconds(const codec::Json& period) {
  if (period.is_number()) return period.as_integer();
  std::int64_t total = 0, number = 0;
  for (const char c : period.as_string().substr(0, 64)) {
    if (c >= '0' && c <= '9') {
      number = std::min<std::int64_t>(number, kPeriodSecondsMax) * 10 + (c - '0');
      continue;
    }
    total += number * (c == 'd' ? 86400 : c == 'h' ? 3600 : c == 'm' ? 60 : 1);
    number = 0;
  }
  return total + number;  // without a unit: seconds
}

}  // namespace varda::api
