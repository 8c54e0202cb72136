#include "agent/models/install_schedule.h"

#include <algorithm>

namespace varda::agent::models {

std::vector<JobKey> InstallSchedule::set_wanted(const std::vector<JobKey>& jobs, SteadyTime now) {
  std::map<JobKey, Job> next;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const auto known = jobs_.find(jobs[i]);
    Job job;
    if (known != jobs_.end()) {
      job = std::move(known->second);
    } else if (!running_.contains(jobs[i])) {
      job.due = now;
    } else {
      job.report.state = JobReport::State::kDownloading;  // wanted again before its stop completed
    }
    job.urgency = i;
    next.emplace(jobs[i], std::move(job));
  }
  jobs_ = std::move(next);
  std::vector<JobKey> stop;
  for (const JobKey& key : running_)
    if (!jobs_.contains(key)) stop.push_back(key);
  return stop;
}

void InstallSchedule::set_ready(const JobKey& key, std::uint64_t bytes) {
  const auto job = jobs_.find(key);
  if (job == jobs_.end() || running_.contains(key)) return;
  job->second.report = {.state = JobReport::State::kReady, .bytes = bytes};
  job->second.due.reset();
}

void InstallSchedule::set_failed(const JobKey& key, artifact::Reason reason, std::string message,
                                 SteadyTime now) {
  const auto job = jobs_.find(key);
  if (job == jobs_.end() || running_.contains(key)) return;
  job->second.report = {.state = JobReport::State::kFailed,
                        .reason = reason,
                        .message = std::move(message),
                        .bytes = 0};
  job->second.failures = 1;
  job->second.due =
      retry_of(reason) == artifact::Retry::kOnChange ? std::nullopt : std::optional(now);
}

void InstallSchedule::again(const codec::Sha256& digest, SteadyTime now) {
  for (auto& [key, job] : jobs_) {
    if (key.digest != digest || job.report.state != JobReport::State::kReady ||
        running_.contains(key))
      continue;
    job.report = {};
    job.failures = 0;
    job.due = now;
  }
}

void InstallSchedule::sources_changed(const codec::Sha256& digest, SteadyTime now) {
  for (auto& [key, job] : jobs_) {
    if (key.digest == digest && job.due && *job.due > now && !running_.contains(key)) job.due = now;
  }
}

std::optional<JobKey> InstallSchedule::take(SteadyTime now) {
  auto best = jobs_.end();
  for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
    if (!job->second.due || *job->second.due > now || running_.contains(job->first)) continue;
    if (best == jobs_.end() || job->second.urgency < best->second.urgency) best = job;
  }
  if (best == jobs_.end()) return std::nullopt;
  best->second.due.reset();
  if (best->second.failures == 0) best->second.report.state = JobReport::State::kDownloading;
  running_.insert(best->first);
  return best->first;
}

void InstallSchedule::finished(const JobKey& key, const artifact::Outcome<std::uint64_t>& bytes,
                               SteadyTime now, double random) {
  running_.erase(key);
  const auto found = jobs_.find(key);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  if (bytes.ok()) {
    job.failures = 0;
    job.report = {.state = JobReport::State::kReady, .bytes = *bytes};
    return;
  }
  const artifact::Failure& failure = bytes.error();
  if (failure.reason == artifact::Reason::kCancelled) {
    job.due = now;
    return;
  }
  ++job.failures;
  job.report = {.state = JobReport::State::kFailed,
                .reason = failure.reason,
                .message = failure.error.message(),
                .bytes = 0};
  switch (retry_of(failure.reason)) {
    case artifact::Retry::kBackoff: {
      const auto doubled = policy_.first * (std::int64_t{1} << std::min(job.failures - 1, 20));
      const auto delay = std::min<std::chrono::milliseconds>(doubled, policy_.max);
      // The sources' Retry-After is a lower bound, so jitter is added above it.
      const auto requested = std::min<std::chrono::milliseconds>(failure.retry_after, policy_.max);
      job.due =
          now + std::max(std::chrono::duration_cast<Duration>(delay * (0.75 + 0.25 * random)),
                         std::chrono::duration_cast<Duration>(requested * (1 + 0.25 * random)));
      break;
    }
    case artifact::Retry::kHourly:
      job.due = now + policy_.hourly;
      break;
    case artifact::Retry::kOnChange:
      break;
  }
}

std::optional<SteadyTime> InstallSchedule::next() const {
  std::optional<SteadyTime> next;
  for (const auto& [key, job] : jobs_)
    if (job.due && !running_.contains(key) && (!next || *job.due < *next)) next = job.due;
  return next;
}

std::map<JobKey, JobReport> InstallSchedule::reports() const {
  std::map<JobKey, JobReport> out;
  for (const auto& [key, job] : jobs_) out.emplace(key, job.report);
  return out;
}

}  // namespace varda::agent::models
