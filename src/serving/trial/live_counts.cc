#include "serving/trial/live_counts.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "serving/trial/best_class.h"

namespace varda::serving::trial {
namespace {

constexpr double kStepsPerOctave = 8;

std::size_t bucket_of(Duration took, std::size_t buckets) {
  const double microseconds = std::chrono::duration<double, std::micro>(took).count();
  if (!(microseconds > 1)) return 0;
  const auto bucket =
      static_cast<std::size_t>(std::ceil(std::log2(microseconds) * kStepsPerOctave));
  return std::min(bucket, buckets - 1);
}

}  // namespace

LiveCounts::LiveCounts(metrics::Histogram* scores)
    : since_(system_clock().wall()), metric_(scores) {}

void LiveCounts::answered(Duration took, std::span<const tensor::Named> outputs) {
  answers_.fetch_add(1, std::memory_order_relaxed);
  times_[bucket_of(took, kTimes)].fetch_add(1, std::memory_order_relaxed);
  const auto best = best_classes(outputs);
  if (!best) return;
  for (const BestClass& one : *best) {
    if (metric_ != nullptr) metric_->observe(one.score);
    const double place = std::clamp(one.score, 0.0, 1.0) * static_cast<double>(kScores);
    scores_[std::min(static_cast<std::size_t>(place), kScores - 1)].fetch_add(
        1, std::memory_order_relaxed);
  }
}

std::optional<double> LiveCounts::median_microseconds() const {
  std::array<std::uint64_t, kTimes> counts{};
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < kTimes; ++i)
    total += counts[i] = times_[i].load(std::memory_order_relaxed);
  if (total == 0) return std::nullopt;
  std::uint64_t below = 0;
  std::size_t middle = 0;
  while (middle + 1 < kTimes && (below += counts[middle]) * 2 < total) ++middle;
  // The middle of the bucket, by ratio.
  return std::exp2((static_cast<double>(middle) - 0.5) / kStepsPerOctave);
}

codec::Json LiveCounts::json() const {
  codec::Json scores = codec::Json::array();
  for (const auto& count : scores_) scores.push_back(count.load(std::memory_order_relaxed));
  return codec::Json::object({{"answers", answers()},
                              {"failures", failures()},
                              {"scores", std::move(scores)},
                              {"since", time_text(since_)}});
}

std::string time_text(WallTime time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text.data(), length};
}

}  // namespace varda::serving::trial
