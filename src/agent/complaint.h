// Which of the complaints about one thing that is looked at again and again goes to the log.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/clock.h"

namespace varda::agent {

/// One thread.
class Complaint {
 public:
  static constexpr std::chrono::seconds kPause{60};

  /// Whether `message` is to be logged: it is another one than was logged last. "": all is well. Between two that are logged lies
  /// at least a kPause, so that what goes to and fro fills no log; what is still true after it is logged then.
  bool is_news(const std::string& message, SteadyTime now) {
    if (message == logged_ || (at_ && now - *at_ < kPause)) return false;
    logged_ = message;
    if (message.empty()) return false;
    at_ = now;
    return true;
  }

 private:
  std::string logged_;  // last; "": none, or all has been well since
  std::optional<SteadyTime> at_;
};

}  // namespace varda::agent
