// Rate limit for log messages about one thing that is checked repeatedly.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/clock.h"

namespace varda::agent::core {

/// One thread.
class LogThrottle {
 public:
  static constexpr std::chrono::seconds kPause{60};

  /// Whether to log `message`: it differs from the message logged last. "": no problem. Logged
  /// messages are at least kPause apart, so that a flapping state does not flood the log. A problem
  /// that still exists after kPause is logged then.
  bool should_log(const std::string& message, SteadyTime now) {
    if (message == logged_ || (at_ && now - *at_ < kPause)) return false;
    logged_ = message;
    if (message.empty()) return false;
    at_ = now;
    return true;
  }

 private:
  std::string logged_;  // last message; "": nothing logged, or resolved since
  std::optional<SteadyTime> at_;
};

}  // namespace varda::agent::core
