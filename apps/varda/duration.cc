#include "duration.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

namespace varda::app {

Result<std::chrono::milliseconds> parse_duration(const std::string& flag, const std::string& text) {
  constexpr double kLongest = 1e12;  // milliseconds, 31 years: no overflow when added to times
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  const double scale = unit == "ms"                  ? 1
                       : unit == "s" || unit.empty() ? 1e3
                       : unit == "m"                 ? 60e3
                       : unit == "h"                 ? 3600e3
                                                     : -1;
  // from_chars() also reads "-1", "inf" and "nan".
  const bool digits =
      !text.empty() && (text.front() == '.' || (text.front() >= '0' && text.front() <= '9'));
  if (error != std::errc() || !digits || scale < 0 || number * scale > kLongest)
    return Error(Code::kInvalid,
                 flag + " must be a time such as 30s, 5m or 1h, not \"" + text + "\"");
  // 0 often means "no limit": a very short time must not become 0.
  const auto rounded = std::chrono::milliseconds(std::llround(number * scale));
  return number > 0 ? std::max(rounded, std::chrono::milliseconds(1)) : rounded;
}

}  // namespace varda::app
