// LiveCounts: counts of one version's answers, to compare versions while they serve.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/metrics.h"
#include "codec/json.h"
#include "tensor/tensor.h"

namespace varda::serving::trial {

/// Thread-safe. Counts are exact; one json() may see an answer in some counts and not yet in
/// others.
class LiveCounts {
 public:
  static constexpr std::size_t kScores = 20;  // buckets of the best class's score, 0.05 wide

  /// Scores go to `scores` too, which outlives the counts; null: to the counts alone.
  explicit LiveCounts(metrics::Histogram* scores = nullptr);
  /// `took` is the time of the version's run, with the steps before and after.
  void answered(Duration took, std::span<const tensor::Named> outputs);
  void failed() { failures_.fetch_add(1, std::memory_order_relaxed); }

  std::uint64_t answers() const { return answers_.load(std::memory_order_relaxed); }
  std::uint64_t failures() const { return failures_.load(std::memory_order_relaxed); }
  /// The median of `took`, within 5 %. Nothing: no answers.
  std::optional<double> median_microseconds() const;
  /// {answers, failures, scores, since}
  codec::Json json() const;

 private:
  // Bucket n counts times up to 2^(n/8) µs; the last one has no bound (16 s).
  static constexpr std::size_t kTimes = 193;

  const WallTime since_;
  metrics::Histogram* const metric_;
  std::atomic<std::uint64_t> answers_{0};
  std::atomic<std::uint64_t> failures_{0};
  std::array<std::atomic<std::uint64_t>, kScores> scores_{};  // samples, not answers
  std::array<std::atomic<std::uint64_t>, kTimes> times_{};
};

/// RFC 3339, in UTC, with whole seconds.
std::string time_text(WallTime time);

}  // namespace varda::serving::trial
