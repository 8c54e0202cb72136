#include <algorithm>
#include <array>
#include <cstdio>

#include "meta/object.h"

namespace varda::meta {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;
using std::chrono::sys_days;

struct Parts {
  int year, month, day, hour, minute, second, micro;
};

Parts split(WallTime time) {
  const auto micros = std::chrono::floor<microseconds>(time);
  const auto day = std::chrono::floor<std::chrono::days>(micros);
  const std::chrono::year_month_day date(day);
  auto rest = (micros - day).count();
  Parts parts{};
  parts.year = static_cast<int>(date.year());
  parts.month = static_cast<int>(static_cast<unsigned>(date.month()));
  parts.day = static_cast<int>(static_cast<unsigned>(date.day()));
  parts.micro = static_cast<int>(rest % 1'000'000);
  rest /= 1'000'000;
  parts.second = static_cast<int>(rest % 60);
  parts.minute = static_cast<int>(rest / 60 % 60);
  parts.hour = static_cast<int>(rest / 3600);
  return parts;
}

template <typename... Args>
std::string print(const char* format, Args... args) {
  std::array<char, 96> text;
  const int n = std::snprintf(text.data(), text.size(), format, args...);
  return {text.data(), static_cast<std::size_t>(n)};
}

// Reads exactly `digits` digits from `text`, or fails.
bool number(std::string_view& text, int digits, int& out) {
  if (text.size() < static_cast<std::size_t>(digits)) return false;
  out = 0;
  for (int i = 0; i < digits; ++i) {
    if (text[i] < '0' || text[i] > '9') return false;
    out = out * 10 + (text[i] - '0');
  }
  text.remove_prefix(digits);
  return true;
}

bool literal(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string format_time(WallTime time) {
  const Parts p = split(time);
  return print("%04d-%02d-%02dT%02d:%02d:%02dZ", p.year, p.month, p.day, p.hour, p.minute,
               p.second);
}

std::string format_micro_time(WallTime time) {
  const Parts p = split(time);
  return print("%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", p.year, p.month, p.day, p.hour, p.minute,
               p.second, p.micro);
}

Result<WallTime> parse_time(std::string_view text) {
  const Error bad(Code::kInvalid, "\"" + std::string(text) +
                                      "\" is not an RFC 3339 time such as 2024-05-01T10:00:00Z");
  std::string_view rest = text;
  int year, month, day, hour, minute, second;
  if (!number(rest, 4, year) || !literal(rest, '-') || !number(rest, 2, month) ||
      !literal(rest, '-') || !number(rest, 2, day))
    return bad;
  if (!literal(rest, 'T') && !literal(rest, 't')) return bad;
  if (!number(rest, 2, hour) || !literal(rest, ':') || !number(rest, 2, minute) ||
      !literal(rest, ':') || !number(rest, 2, second))
    return bad;
  std::int64_t micros = 0;
  if (literal(rest, '.')) {
    std::int64_t unit = 100'000;
    bool any = false;
    while (!rest.empty() && rest.front() >= '0' && rest.front() <= '9') {
      micros += unit * (rest.front() - '0');
      unit /= 10;
      any = true;
      rest.remove_prefix(1);
    }
    if (!any) return bad;
  }
  std::int64_t offset_seconds = 0;
  if (!literal(rest, 'Z') && !literal(rest, 'z')) {
    const bool west = !rest.empty() && rest.front() == '-';
    int hours, minutes;
    if (!literal(rest, '+') && !literal(rest, '-')) return bad;
    if (!number(rest, 2, hours) || !literal(rest, ':') || !number(rest, 2, minutes) || hours > 23 ||
        minutes > 59)
      return bad;
    offset_seconds = (hours * 60 + minutes) * 60 * (west ? -1 : 1);
  }
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!rest.empty() || !date.ok() || hour > 23 || minute > 59 || second > 60) return bad;
  const std::int64_t since_midnight = (hour * 60 + minute) * 60 + second - offset_seconds;
  const auto since_epoch = std::chrono::duration_cast<seconds>(sys_days(date).time_since_epoch()) +
                           seconds(since_midnight);
  // The clock counts nanoseconds in 64 bits. Times before 1677 or after 2262 become the nearest
  // valid time.
  constexpr auto kFirst = std::chrono::ceil<seconds>(WallTime::duration::min()) + seconds(1);
  constexpr auto kLast = std::chrono::floor<seconds>(WallTime::duration::max()) - seconds(1);
  if (since_epoch < kFirst || since_epoch > kLast)
    return WallTime(std::clamp<seconds>(since_epoch, kFirst, kLast));
  return WallTime(since_epoch + microseconds(micros));
}

std::string format_age(std::chrono::seconds age) {
  const long long s = age.count();
  if (s < -1) return "<invalid>";
  if (s < 0) return "0s";
  if (s < 120) return print("%llds", s);
  const long long minutes = s / 60, hours = s / 3600, days = hours / 24, years = days / 365;
  if (minutes < 10)
    return s % 60 == 0 ? print("%lldm", minutes) : print("%lldm%llds", minutes, s % 60);
  if (minutes < 180) return print("%lldm", minutes);
  if (hours < 8)
    return minutes % 60 == 0 ? print("%lldh", hours) : print("%lldh%lldm", hours, minutes % 60);
  if (hours < 48) return print("%lldh", hours);
  if (days < 8)
    return hours % 24 == 0 ? print("%lldd", days) : print("%lldd%lldh", days, hours % 24);
  if (days < 730) return print("%lldd", days);
  if (years < 8)
    return days % 365 == 0 ? print("%lldy", years) : print("%lldy%lldd", years, days % 365);
  return print("%lldy", years);
}

}  // namespace varda::meta
