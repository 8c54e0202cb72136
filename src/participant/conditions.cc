#include "participant/conditions.h"

#include <charconv>
#include <cstdio>
#include <ctime>
#include <utility>

#include "base/text.h"
#include "codec/settings_reader.h"

namespace varda::participant {
namespace {

using codec::Choice;
using codec::Json;
using codec::SettingsReader;
using std::chrono::minutes;

constexpr minutes kDay{24 * 60};
constexpr Choice<Window::Zone> kZones[] = {{"UTC", Window::Zone::kUtc},
                                           {"local", Window::Zone::kLocal}};
constexpr Choice<bool> kPowers[] = {{"any", false}, {"mains", true}};

/// "22:00", from 00:00 to 24:00.
std::optional<minutes> time_of_day(std::string_view text) {
  if (text.size() != 5 || text[2] != ':') return std::nullopt;
  const auto hour = parse_integer<int>(text.substr(0, 2));
  const auto minute = parse_integer<int>(text.substr(3));
  if (!hour || !minute || *hour < 0 || *minute < 0 || *minute > 59 || *hour > 24)
    return std::nullopt;
  const minutes out(60 * *hour + *minute);
  return out <= kDay ? std::optional(out) : std::nullopt;
}

std::string time_text(minutes time) {
  char text[16];
  std::snprintf(text, sizeof text, "%02d:%02d", static_cast<int>(time.count() / 60),
                static_cast<int>(time.count() % 60));
  return text;
}

Status read_window(const Json& json, Window& out) {
  Status status;
  SettingsReader in(json, "window", status);
  std::string start = "00:00", end = "24:00";
  in.text("start", start);
  in.text("end", end);
  in.choice("timezone", out.zone, kZones);
  in.end();
  TRY_VOID(std::move(status));
  for (const auto& [name, text, time] :
       {std::tuple("window.start", &start, &out.start), std::tuple("window.end", &end, &out.end)}) {
    const auto read = time_of_day(*text);
    if (!read)
      return Error(Code::kInvalid,
                   std::string(name) + " must be a time such as \"22:00\", not \"" + *text + "\"");
    *time = *read;
  }
  return {};
}

bool is_inside(const Window& window, minutes now) {
  const minutes start = window.start % kDay, end = window.end;
  if (start == end % kDay) return true;
  if (start < end) return now >= start && now < end;
  return now >= start || now < end;
}

class MachineImpl final : public Machine {
 public:
  MachineImpl(os::FileSystem& fs, const Clock& clock) : fs_(fs), clock_(clock) {}

  MachineState look() override {
    MachineState out{.load = load(), .mains = mains()};
    const std::time_t now = std::chrono::system_clock::to_time_t(clock_.wall());
    std::tm parts{};
    if (::gmtime_r(&now, &parts) != nullptr) out.utc = minutes(60 * parts.tm_hour + parts.tm_min);
    if (::localtime_r(&now, &parts) != nullptr)
      out.local = minutes(60 * parts.tm_hour + parts.tm_min);
    return out;
  }

 private:
  static constexpr std::uint64_t kFileMax = 4096;

  std::optional<double> load() {
    const auto text = os::read_file(fs_, "/proc/loadavg", kFileMax);
    if (!text.ok()) return std::nullopt;
    double value = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    return error == std::errc() ? std::optional(value) : std::nullopt;
  }

  /// linux/Documentation/ABI/testing/sysfs-class-power: `type`, `online`, `status`.
  std::optional<bool> mains() {
    const os::Path root = "/sys/class/power_supply";
    const auto names = fs_.list(root);
    if (!names.ok()) return true;  // a kernel without power supplies: no battery
    bool battery = false, discharging = false, line = false, online = false;
    for (const std::string& name : *names) {
      const auto read = [&](const char* file) -> std::string {
        const auto text = os::read_file(fs_, root / name / file, kFileMax);
        return text.ok() ? std::string(trim(*text)) : "";
      };
      const std::string type = read("type");
      // A mouse or a phone at the machine is a battery of scope Device.
      if (type == "Battery" && read("scope") != "Device") {
        battery = true;
        discharging = discharging || read("status") == "Discharging";
      } else if (type == "Mains" || type == "USB" || type == "Wireless") {
        line = true;
        online = online || read("online") == "1";
      }
    }
    if (!battery) return true;
    return line ? online : !discharging;
  }

  os::FileSystem& fs_;
  const Clock& clock_;
};

}  // namespace

Result<When> parse_when(const Json& json) {
  When out;
  if (json.is_null()) return out;
  Status status;
  SettingsReader in(json, "", status);
  if (const Json* window = in.object("window"))
    TRY_VOID(read_window(*window, out.window.emplace()));
  double idle = -1;
  in.number("idle", idle, {0, 100'000});
  if (idle >= 0) out.idle = idle;
  in.choice("power", out.mains, kPowers);
  in.end();
  TRY_VOID(std::move(status));
  return out;
}

std::optional<std::string> reason_to_wait(const When& when, const MachineState& state) {
  if (when.window) {
    const bool utc = when.window->zone == Window::Zone::kUtc;
    if (!is_inside(*when.window, utc ? state.utc : state.local))
      return "the window is from " + time_text(when.window->start) + " to " +
             time_text(when.window->end) + (utc ? " UTC" : "");
  }
  if (when.mains && state.mains != true)
    return state.mains ? "the machine runs on battery" : "the power supply is unknown";
  if (when.idle) {
    if (!state.load) return "the load is unknown";
    if (*state.load > *when.idle) {
      char text[64];
      std::snprintf(text, sizeof text, "load %.2f is above %.2f", *state.load, *when.idle);
      return text;
    }
  }
  return std::nullopt;
}

std::unique_ptr<Machine> make_machine(os::FileSystem& fs, const Clock& clock) {
  return std::make_unique<MachineImpl>(fs, clock);
}

}  // namespace varda::participant
