#include "duration.h"

#include <algorithm>
#include <exception>

namespace varda::app {

Result<std::chrono::milliseconds> parse_duration(const std::string& flag, const std::string& text) {
  std::size_t used = 0;
  double number = -1;
  try {
    number = std::stod(text, &used);
  } catch (const std::exception&) {
  }
  const std::string unit = text.substr(std::min(used, text.size()));
  const double scale = unit == "ms" ? 1 : unit == "s" || unit.empty() ? 1e3 : unit == "m" ? 60e3 : unit == "h" ? 3600e3 : -1;
  if (!(number >= 0) || scale < 0 || number * scale > 1e12)
    return Error(Code::kInvalid, flag + " takes a time like 30s, 5m or 1h, not \"" + text + "\"");
  return std::chrono::milliseconds(static_cast<std::int64_t>(number * scale));
}

}  // namespace varda::app
