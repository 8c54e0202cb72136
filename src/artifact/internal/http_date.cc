#include "artifact/internal/http_date.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/text.h"

namespace varda::artifact {
namespace {

constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
constexpr std::array<std::string_view, 7> kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};

std::optional<int> number(std::string_view text) {
  const auto value = parse_integer<int>(text);
  return value && *value >= 0 ? value : std::nullopt;
}

}  // namespace

std::optional<WallTime> parse_http_date(std::string_view text) {
  if (text.size() != 29 || text.substr(3, 2) != ", " || text.substr(25) != " GMT")
    return std::nullopt;
  unsigned month = 0;
  while (month < kMonths.size() && kMonths[month] != text.substr(8, 3)) ++month;
  const auto day = number(text.substr(5, 2)), year = number(text.substr(12, 4)),
             hour = number(text.substr(17, 2)), minute = number(text.substr(20, 2)),
             second = number(text.substr(23, 2));
  if (month == kMonths.size() || !day || !year || !hour || !minute || !second) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year), std::chrono::month(month + 1),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok() || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  using std::chrono::seconds;
  const auto time = std::chrono::sys_days(date) + std::chrono::hours(*hour) +
                    std::chrono::minutes(*minute) + seconds(*second);
  // The clock counts nanoseconds in 64 bits, and the difference of any two times must fit too.
  constexpr auto kLast = std::chrono::floor<seconds>(WallTime::duration::max());
  return WallTime(std::clamp(time.time_since_epoch(), seconds(0), kLast));
}

std::string write_http_date(WallTime time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const auto days = std::chrono::floor<std::chrono::days>(seconds);
  const std::chrono::year_month_day date(days);
  const std::chrono::hh_mm_ss clock(seconds - days);
  char text[64];
  std::snprintf(
      text, sizeof text, "%s, %02u %s %04d %02d:%02d:%02d GMT",
      kDays[std::chrono::weekday(days).c_encoding()].data(), static_cast<unsigned>(date.day()),
      kMonths[static_cast<unsigned>(date.month()) - 1].data(), static_cast<int>(date.year()),
      static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
      static_cast<int>(clock.seconds().count()));
  return text;
}

std::optional<std::chrono::seconds> retry_after_of(const net::Headers& headers) {
  constexpr std::chrono::seconds kMax = std::chrono::hours(1);
  const auto text = headers.find("Retry-After");
  if (!text) return std::nullopt;
  if (const auto seconds = number(*text)) return std::min(std::chrono::seconds(*seconds), kMax);
  const auto until = parse_http_date(*text),
             now = parse_http_date(headers.find("Date").value_or(""));
  if (!until || !now || *until < *now) return std::nullopt;
  return std::min(std::chrono::duration_cast<std::chrono::seconds>(*until - *now), kMax);
}

}  // namespace varda::artifact
