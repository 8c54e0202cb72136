// Polls model servers: the version that each serves, failed loads, and counters of tiers.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <vector>

#include "agent/core/log_throttle.h"
#include "agent/models/plan.h"
#include "base/context.h"
#include "base/mutex.h"
#include "net/http.h"
#include "runtime/task.h"

namespace varda::agent::models {

/// Thread-safe.
class ServingPoller {
 public:
  struct Options {
    std::chrono::milliseconds busy{300};     // between polls until a server serves the target
    std::chrono::milliseconds steady{2000};  // between polls once it does
    // After a change of the version, kept samples are polled more often: a bad version shows early.
    std::chrono::milliseconds fresh{500}, fresh_for{30'000};
    std::chrono::milliseconds timeout{1000};
    std::chrono::milliseconds trial_period{2000};  // between reports that change only counts
    const Clock* clock = nullptr;                  // null: the system clock
  };
  /// Called with each answer about a model's tiers, as JSON, or with the error. Servers without
  /// tiers cause no call.
  using OnJoint = std::function<void(const std::string& key, const Result<codec::Json>& answer)>;
  /// `http` outlives the poller. `changed` is called by step() when a report has changed.
  ServingPoller(net::HttpClient& http, Options options, std::function<void()> changed,
                OnJoint joint = {})
      : http_(http),
        options_(options),
        clock_(options.clock != nullptr ? *options.clock : system_clock()),
        changed_(std::move(changed)),
        joint_(std::move(joint)) {}

  /// Sets the servers to poll. New or changed ones are polled at once; reports of removed ones are
  /// dropped.
  void set(std::vector<Poll> polls);
  std::map<std::string, api::EdgeServingReport> reports() const;
  /// The servers' reports on versions on trial, by model.
  std::map<std::string, api::ModelTrialStatus> trials() const;
  /// Counts of kept samples by model, for servers that keep some.
  std::map<std::string, api::SampleReport> samples() const;
  /// The `.last-good` line by model, for servers that report it.
  std::map<std::string, std::string> last_good() const;
  /// Whether every server was polled at least once.
  bool complete() const;

  runtime::Task task();
  /// Runs the polls that are due. One thread.
  void step(const Context& ctx);
  /// Polls the tier counters of all servers that answered lately, until the context is done. Any
  /// thread.
  void poll_counters(const Context& ctx);
  /// When the next poll is due.
  std::optional<SteadyTime> due() const;

 private:
  struct State {
    Poll poll;
    SteadyTime due;
    SteadyTime version_since;  // the server's version is known for so long
    int failures = 0;
    std::optional<api::EdgeServingReport> report;
    std::string last_good;
    std::optional<api::ModelTrialStatus> trial;
    SteadyTime trial_at;  // time of `trial`
    std::optional<api::SampleReport> samples;
    core::LogThrottle log_throttle;  // about unreadable answers
  };
  struct Answer {
    api::EdgeServingReport report;
    std::string last_good;
  };
  Result<Answer> fetch(const Context& ctx, const Poll& poll);
  void take(const Poll& poll, const Result<Answer>& answer);
  void poll_joint(const Context& ctx, const Poll& poll);
  void poll_trial(const Context& ctx, const Poll& poll);
  void poll_samples(const Context& ctx, const Poll& poll);

  net::HttpClient& http_;
  const Options options_;
  const Clock& clock_;
  const std::function<void()> changed_;
  const OnJoint joint_;
  mutable Mutex mutex_;
  runtime::Wakeup wakeup_;
  std::map<std::string, State> states_ GUARDED_BY(mutex_);
};

}  // namespace varda::agent::models
