// Which install runs next, and when a failed one is tried again. No threads, no clock: times come in, decisions go out.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "agent/plan.h"
#include "base/clock.h"

namespace varda::agent {

struct RetryPolicy {
  std::chrono::milliseconds first{1000};
  std::chrono::milliseconds max{std::chrono::minutes(5)};
  std::chrono::milliseconds hourly{std::chrono::hours(1)};
};

/// Not thread-safe.
class InstallSchedule {
 public:
  explicit InstallSchedule(RetryPolicy policy) : policy_(policy) {}

  /// The jobs there are from now on, the most urgent first. Returns those running that are no longer wanted: stop them.
  std::vector<JobKey> set_wanted(const std::vector<JobKey>& jobs, SteadyTime now);
  /// It is on disk already: nothing to run.
  void set_ready(const JobKey& job, std::uint64_t bytes);
  /// How it failed in a former life of the agent. What only a change can heal is not tried again, the rest is at once.
  void set_failed(const JobKey& job, artifact::Reason reason, std::string message, SteadyTime now);

  /// What was ready is not what it should be: it is installed once more.
  void again(const codec::Sha256& digest, SteadyTime now);

  /// There are others to ask for it: what failed may work now.
  void sources_changed(const codec::Sha256& digest, SteadyTime now);

  /// The next job to run now; it then counts as running until finished().
  std::optional<JobKey> take(SteadyTime now);
  /// `random` in [0, 1) spreads the back-off.
  void finished(const JobKey& job, const artifact::Outcome<std::uint64_t>& bytes, SteadyTime now, double random);
  /// When the next job becomes due; nothing: none is waiting.
  std::optional<SteadyTime> next() const;

  bool known(const JobKey& job) const { return jobs_.contains(job); }
  /// Of the jobs wanted. A failed one stays failed while it is tried again.
  std::map<JobKey, JobReport> reports() const;

 private:
  struct Job {
    JobReport report;
    std::size_t urgency = 0;
    int failures = 0;
    std::optional<SteadyTime> due;  // nothing: ready, running, or waiting for a change
  };
  RetryPolicy policy_;
  std::map<JobKey, Job> jobs_;
  std::set<JobKey> running_;  // may hold jobs no longer wanted
};

}  // namespace varda::agent
