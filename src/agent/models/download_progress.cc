#include "agent/models/download_progress.h"

#include <algorithm>

namespace varda::agent::models {

void DownloadProgress::started(const JobKey& job, SteadyTime now) {
  downloads_[job] = {.started = now, .now = {}, .published = {}};
}

void DownloadProgress::note(const JobKey& job, std::uint64_t done, std::uint64_t total) {
  const auto found = downloads_.find(job);
  if (found != downloads_.end()) found->second.now = Figures{done, total};
}

void DownloadProgress::ended(const JobKey& job) { downloads_.erase(job); }

std::optional<SteadyTime> DownloadProgress::due() const {
  std::optional<SteadyTime> first;
  for (const auto& [job, download] : downloads_) {
    const SteadyTime ripe = download.started + period_;
    if (!first || ripe < *first) first = ripe;
  }
  if (first && last_reported_) first = std::max(*first, *last_reported_ + period_);
  return first;
}

void DownloadProgress::publish_reports(SteadyTime now) {
  const auto time = due();
  if (!time || now < *time) return;
  last_reported_ = now;
  for (auto& [job, download] : downloads_)
    if (now >= download.started + period_) download.published = download.now;
}

void DownloadProgress::fill(std::map<JobKey, JobReport>& jobs) const {
  for (const auto& [key, download] : downloads_) {
    const auto job = jobs.find(key);
    if (!download.published || job == jobs.end()) continue;
    // A failed job stays failed until its next attempt makes progress.
    if (job->second.state == JobReport::State::kFailed)
      job->second.state = JobReport::State::kDownloading;
    if (job->second.state != JobReport::State::kDownloading) continue;
    job->second.done = download.published->done;
    job->second.total = download.published->total;
  }
}

}  // namespace varda::agent::models
