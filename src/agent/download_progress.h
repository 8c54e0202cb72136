// How far the downloads under way are, told so rarely that a status may say it. No threads, no clock: times come in.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "agent/plan.h"
#include "base/clock.h"

namespace varda::agent {

/// What is told changes once a period at most, for all downloads together, and never before a download has taken a period: short
/// ones are told nothing of. Not thread-safe.
class DownloadProgress {
 public:
  explicit DownloadProgress(Duration period) : period_(period) {}

  void started(const JobKey& job, SteadyTime now);
  /// Bytes of the archive; `total` 0: not known. Nothing if it is not under way.
  void note(const JobKey& job, std::uint64_t done, std::uint64_t total);
  /// What was told of it is told no more.
  void ended(const JobKey& job);

  /// When tell() has something to do; nothing while nothing is downloaded.
  std::optional<SteadyTime> due() const;
  /// From here on fill() says how far they are now, if it is due.
  void tell(SteadyTime now);
  /// Puts what is told into the reports of those that are downloading. A failed one that is downloaded once more becomes
  /// downloading, and keeps the reason and message of its last failure.
  void fill(std::map<JobKey, JobReport>& jobs) const;

 private:
  struct Figures {
    std::uint64_t done = 0, total = 0;
  };
  struct Download {
    SteadyTime started;
    std::optional<Figures> now, told;  // nothing: no byte has come
  };
  const Duration period_;
  std::map<JobKey, Download> downloads_;
  std::optional<SteadyTime> last_told_;
};

}  // namespace varda::agent
