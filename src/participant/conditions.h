// The times at which a client may train: a window of the day, an idle machine, mains power.
//
//   when: {window: {start: "22:00", end: "06:00", timezone: UTC}, idle: 0.5, power: mains}
//
//   TRY(const When when, parse_when(json));
//   while (const auto reason = reason_to_wait(when, machine->look())) … sleep a minute
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "codec/json.h"
#include "os/file_system.h"

namespace varda::participant {

/// A part of each day. An end before the start is on the next day. Equal times mean the whole day.
struct Window {
  enum class Zone : std::uint8_t { kUtc, kLocal };
  std::chrono::minutes start{0}, end{0};  // since midnight
  Zone zone = Zone::kUtc;
};

/// All present conditions must hold.
struct When {
  std::optional<Window> window;
  std::optional<double> idle;  // the largest load average of one minute
  bool mains = false;          // power: mains
};

/// Absent members set no condition; null is no condition at all. kInvalid: a member is unknown or
/// wrong; the message has the path.
Result<When> parse_when(const codec::Json& json);

/// The state of a machine at one moment. Unknown values fulfil no condition.
struct MachineState {
  std::chrono::minutes utc{0}, local{0};  // since midnight
  std::optional<double> load;             // the average of one minute
  std::optional<bool> mains;
};

/// "load 1.73 is above 0.5", or nothing if all conditions hold.
std::optional<std::string> reason_to_wait(const When& when, const MachineState& state);

/// Thread-safe.
class Machine {
 public:
  virtual ~Machine() = default;
  virtual MachineState look() = 0;
};

/// Reads /proc/loadavg and /sys/class/power_supply. A machine without a battery has mains power.
/// Both outlive the object.
std::unique_ptr<Machine> make_machine(os::FileSystem& fs, const Clock& clock);

}  // namespace varda::participant
