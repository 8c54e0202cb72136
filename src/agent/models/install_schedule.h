// Decides which install runs next, and when a failed one is retried. No threads or clock: the
// caller passes times in.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "agent/models/plan.h"
#include "base/clock.h"

namespace varda::agent::models {

struct RetryPolicy {
  std::chrono::milliseconds first{1000};
  std::chrono::milliseconds max{std::chrono::minutes(5)};
  std::chrono::milliseconds hourly{std::chrono::hours(1)};
};

/// Not thread-safe.
class InstallSchedule {
 public:
  explicit InstallSchedule(RetryPolicy policy) : policy_(policy) {}

  /// Replaces the job list, most urgent first. Returns the running jobs that are no longer wanted;
  /// the caller stops them.
  std::vector<JobKey> set_wanted(const std::vector<JobKey>& jobs, SteadyTime now);
  /// The job is on disk already; nothing to run.
  void set_ready(const JobKey& job, std::uint64_t bytes);
  /// Restores a failure of a previous run. A job that only a change can fix waits; others are
  /// retried at once.
  void set_failed(const JobKey& job, artifact::Reason reason, std::string message, SteadyTime now);

  /// An installed artifact is invalid; install it again.
  void again(const codec::Sha256& digest, SteadyTime now);

  /// New sources exist for the artifact, so failed jobs may now succeed.
  void sources_changed(const codec::Sha256& digest, SteadyTime now);

  /// The next job to run; it counts as running until finished().
  std::optional<JobKey> take(SteadyTime now);
  /// `random` in [0, 1) is the jitter of the backoff.
  void finished(const JobKey& job, const artifact::Outcome<std::uint64_t>& bytes, SteadyTime now,
                double random);
  /// When the next job becomes due; nothing: no job waits.
  std::optional<SteadyTime> next() const;

  bool known(const JobKey& job) const { return jobs_.contains(job); }
  /// Reports of the wanted jobs. A failed job stays failed during its retry.
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
  std::set<JobKey> running_;  // may contain jobs no longer wanted
};

}  // namespace varda::agent::models
