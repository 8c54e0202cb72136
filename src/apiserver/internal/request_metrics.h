// Counts requests and their times. The registry looks a metric up by its text; here every request has its own at hand.
#pragma once

#include <array>
#include <atomic>
#include <string_view>

#include "base/clock.h"
#include "base/metrics.h"

namespace varda::apiserver {

/// Thread-safe. Outlived by the registry; null: counts nothing.
class RequestMetrics {
 public:
  explicit RequestMetrics(metrics::Registry* registry) : registry_(registry) {}
  /// `verb` in the lower case of authorization; unknown ones count as OTHER, since a client must not make series.
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
