// Context: the deadline and the stop request of a call. The first argument of everything that
// waits.
#pragma once

#include <optional>
#include <stop_token>

#include "base/clock.h"
#include "base/result.h"

namespace varda {

/// A stop request and a deadline. Cheap to copy; thread-safe.
class Context {
 public:
  /// Never done.
  static Context background() { return Context(); }
  explicit Context(std::stop_token stop = {}) : stop_(std::move(stop)) {}

  /// The same, but done after `timeout` at the latest.
  Context with_timeout(Duration timeout) const {
    return with_deadline(system_clock().now() + timeout);
  }
  Context with_deadline(SteadyTime deadline) const {
    Context copy = *this;
    if (!copy.deadline_ || deadline < *copy.deadline_) copy.deadline_ = deadline;
    return copy;
  }
  /// The same deadline with another stop source (for an independent worker).
  Context with_stop(std::stop_token stop) const {
    Context copy = *this;
    copy.stop_ = std::move(stop);
    return copy;
  }

  const std::stop_token& stop_token() const { return stop_; }
  std::optional<SteadyTime> deadline() const { return deadline_; }
  bool stopped() const { return stop_.stop_requested(); }
  bool expired() const { return deadline_ && system_clock().now() >= *deadline_; }
  bool done() const { return stopped() || expired(); }

  /// kCancelled after a stop request, kTimeout after the deadline, else success.
  Status check() const;

  /// Sleeps until `until`, a stop request or the deadline. Returns check().
  Status sleep_until(SteadyTime until) const;
  Status sleep_for(Duration duration) const { return sleep_until(system_clock().now() + duration); }

 private:
  std::stop_token stop_;
  std::optional<SteadyTime> deadline_;
};

}  // namespace varda
