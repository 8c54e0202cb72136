// Progress of running downloads, published at a low rate because it goes into a status. No threads
// or clock: the caller passes times in.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "agent/models/plan.h"
#include "base/clock.h"

namespace varda::agent::models {

/// Published figures change at most once per period, for all downloads together. Downloads shorter
/// than a period are never published. Not thread-safe.
class DownloadProgress {
 public:
  explicit DownloadProgress(Duration period) : period_(period) {}

  void started(const JobKey& job, SteadyTime now);
  /// Bytes of the archive; `total` 0: unknown. Ignored if the download is not running.
  void note(const JobKey& job, std::uint64_t done, std::uint64_t total);
  /// Withdraws the published figures of the download.
  void ended(const JobKey& job);

  /// When publish_reports() has something to publish. Nothing: no download is running.
  std::optional<SteadyTime> due() const;
  /// Publishes the current figures for fill(), if it is due.
  void publish_reports(SteadyTime now);
  /// Puts the published figures into the reports of running downloads. A failed job that is
  /// downloaded again becomes downloading, but keeps reason and message of its last failure.
  void fill(std::map<JobKey, JobReport>& jobs) const;

 private:
  struct Figures {
    std::uint64_t done = 0, total = 0;
  };
  struct Download {
    SteadyTime started;
    std::optional<Figures> now, published;  // nothing: no byte received
  };
  const Duration period_;
  std::map<JobKey, Download> downloads_;
  std::optional<SteadyTime> last_reported_;
};

}  // namespace varda::agent::models
