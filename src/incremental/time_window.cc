#include "incremental/time_window.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/text.h"
#include "codec/settings_reader.h"

namespace varda::incremental {
namespace {

using codec::Json;
using std::chrono::minutes;

constexpr minutes kDay{1440};
constexpr std::chrono::year kYearMax{2200};  // nanoseconds in 64 bits end in 2262
constexpr minutes kOffsetMax{14 * 60};       // of the zones in use

/// The minutes of "HH:MM" or "H:MM"; nothing: another text.
std::optional<minutes> parse_clock(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0 || colon > 2 || text.size() != colon + 3)
    return std::nullopt;
  const auto hours = parse_integer<int>(text.substr(0, colon));
  const auto rest = parse_integer<int>(text.substr(colon + 1));
  if (!hours || !rest || *hours < 0 || *rest < 0 || *rest > 59) return std::nullopt;
  return minutes(60 * *hours + *rest);
}

std::string clock_text(minutes time) {
  std::array<char, 32> out{};
  std::snprintf(out.data(), out.size(), "%02d:%02d", static_cast<int>(time.count() / 60),
                static_cast<int>(time.count() % 60));
  return out.data();
}

std::string zone_text(minutes offset) {
  if (offset == minutes(0)) return "UTC";
  return (offset < minutes(0) ? "-" : "+") + clock_text(offset < minutes(0) ? -offset : offset);
}

std::optional<minutes> parse_zone(std::string_view text) {
  if (text == "UTC" || text == "Z" || text == "Etc/UTC" || text == "GMT") return minutes(0);
  if (text.size() != 6 || (text[0] != '+' && text[0] != '-')) return std::nullopt;
  const auto offset = parse_clock(text.substr(1));
  if (!offset || *offset > kOffsetMax) return std::nullopt;
  return text[0] == '-' ? -*offset : *offset;
}

void read_clock(codec::SettingsReader& in, std::string_view name, minutes& out) {
  const Json* value = in.object(name);
  if (value == nullptr) return;
  if (!value->is_string())
    return in.refuse(name, "a text such as \"02:00\"; YAML needs the quotes");
  const auto time = parse_clock(value->as_string());
  if (!time || *time > kDay) return in.refuse(name, "a time from 00:00 to 24:00");
  out = *time;
}

}  // namespace

bool TimeWindow::contains(WallTime now) const { return opens(now) == now; }

WallTime TimeWindow::opens(WallTime now) const {
  if (start % kDay == end % kDay) return now;
  const auto local = now + offset;
  const auto day = std::chrono::floor<std::chrono::days>(local);
  const auto time = local - day;
  const bool inside = start < end ? time >= start && time < end : time >= start || time < end;
  if (inside) return now;
  auto next = day + start;
  if (next < local) next += kDay;
  return std::chrono::time_point_cast<WallTime::duration>(next - offset);
}

std::string TimeWindow::text() const {
  return clock_text(start) + " to " + clock_text(end) + " " + zone_text(offset);
}

Result<TimeWindow> parse_time_window(const Json& json, const std::string& path) {
  TimeWindow out;
  Status status;
  codec::SettingsReader in(json, path, status);
  read_clock(in, "start", out.start);
  read_clock(in, "end", out.end);
  if (const Json* zone = in.object("timeZone")) {
    const auto offset = zone->is_string() ? parse_zone(zone->as_string()) : std::nullopt;
    if (offset)
      out.offset = *offset;
    else
      in.refuse("timeZone", "UTC or an offset such as +02:00 (names of zones are not supported)");
  }
  in.end();
  TRY_VOID(std::move(status));
  for (const std::string_view name : {"start", "end"})
    if (json[name].is_null())
      return Error(Code::kInvalid, path + " needs the member " + std::string(name));
  return out;
}

Json to_json(const TimeWindow& window) {
  return Json::object({{"start", clock_text(window.start)},
                       {"end", clock_text(window.end)},
                       {"timeZone", zone_text(window.offset)}});
}

std::string time_text(WallTime time) {
  using namespace std::chrono;  // NOLINT: the calendar has many names
  constexpr auto kFirst = sys_days{year{1970} / 1 / 1};
  constexpr auto kLast = sys_days{kYearMax / 12 / 31};
  const auto exact =
      std::clamp<sys_time<milliseconds>>(time_point_cast<milliseconds>(time), kFirst, kLast);
  const auto day = floor<days>(exact);
  const year_month_day date{day};
  const hh_mm_ss clock{exact - day};
  std::array<char, 64> out{};
  std::snprintf(
      out.data(), out.size(), "%04d-%02u-%02uT%02d:%02d:%02d.%03dZ", static_cast<int>(date.year()),
      static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
      static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
      static_cast<int>(clock.seconds().count()), static_cast<int>(clock.subseconds().count()));
  return out.data();
}

std::optional<WallTime> parse_time(std::string_view text) {
  using namespace std::chrono;  // NOLINT: as above
  constexpr std::string_view kForm = "0000-00-00T00:00:00.000Z";
  if (text.size() != kForm.size()) return std::nullopt;
  for (std::size_t i = 0; i < kForm.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kForm[i] == '0' ? !digit : text[i] != kForm[i]) return std::nullopt;
  }
  const auto part = [&](std::size_t at, std::size_t size) {
    return *parse_integer<unsigned>(text.substr(at, size));
  };
  const year_month_day date{year{static_cast<int>(part(0, 4))}, month{part(5, 2)}, day{part(8, 2)}};
  if (!date.ok() || date.year() < year{1970} || date.year() > kYearMax || part(11, 2) > 23 ||
      part(14, 2) > 59 || part(17, 2) > 59)
    return std::nullopt;
  return WallTime(sys_days{date} + hours(part(11, 2)) + minutes(part(14, 2)) +
                  seconds(part(17, 2)) + milliseconds(part(20, 3)));
}

}  // namespace varda::incremental
