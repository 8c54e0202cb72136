// A daily window of time: {start: "22:00", end: "04:00", timeZone: "+02:00"}.
//
// start belongs to the window, end does not. A window with an end before its start wraps midnight.
// Equal times make a window of the whole day. "24:00" is the end of the day.
//
// A time zone is UTC or a fixed offset. Names such as Europe/Berlin are refused: g++ 12 has no time
// zone database, and this room reads no files. Daylight saving time therefore moves no window.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "codec/json.h"

namespace varda::incremental {

struct TimeWindow {
  std::chrono::minutes start{0};  // of the local day, below 24 h
  std::chrono::minutes end{1440};
  std::chrono::minutes offset{0};  // local time minus UTC

  bool contains(WallTime now) const;
  /// The next start of the window, or `now` inside of it.
  WallTime opens(WallTime now) const;
  /// "22:00 to 04:00 +02:00"
  std::string text() const;

  friend bool operator==(const TimeWindow&, const TimeWindow&) = default;
};

/// kInvalid: the message names the member. A number instead of a text gets a hint about quotes.
Result<TimeWindow> parse_time_window(const codec::Json& json, const std::string& path);
codec::Json to_json(const TimeWindow& window);

/// "2026-11-28T02:00:00.000Z"; years 1970 to 2200, other times become the nearest of these.
std::string time_text(WallTime time);
/// Nothing: another form.
std::optional<WallTime> parse_time(std::string_view text);

}  // namespace varda::incremental
