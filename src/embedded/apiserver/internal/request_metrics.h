// Request counters and latencies. Caches metric pointers, because the registry looks up metrics by
// text.
#pragma once

#include <array>
#include <atomic>
#include <string_view>

#include "base/clock.h"
#include "base/metrics.h"

namespace varda::apiserver {

/// Thread-safe. The registry outlives it; null: counts nothing.
class RequestMetrics {
 public:
  explicit RequestMetrics(metrics::Registry* registry) : registry_(registry) {}
  /// `verb` in the lower case of authorization. Unknown verbs count as OTHER, so clients cannot
  /// create series.
  void count(std::string_view verb, int status, Duration took);

 private:
  struct Verb {
    std::atomic<metrics::Histogram*> seconds{nullptr};
    std::array<std::atomic<metrics::Counter*>, 500> by_status{};  // 100 to 599
  };
  metrics::Registry* const registry_;
  std::array<Verb, 9> verbs_;
};

}  // namespace varda::apiserver
