// Metrics from the status of IncrementalLearningJobs; docs/reference/metrics.md lists them.
#pragma once

#include <functional>
#include <utility>

#include "base/metric_collector.h"
#include "runtime/informer.h"

namespace varda::controllers::incrementallearning {

/// Reads the cache, so the metrics of a deleted job disappear.
class IncrementalMetrics final : public metrics::Collector {
 public:
  /// collect() gives nothing while `is_reporter()` is false. `caches`, and objects that
  /// `is_reporter` uses, outlive calls of collect().
  IncrementalMetrics(const runtime::Caches& caches, std::function<bool()> is_reporter)
      : caches_(caches), is_reporter_(std::move(is_reporter)) {}

  void collect(metrics::Samples& out) const override;

 private:
  const runtime::Caches& caches_;
  const std::function<bool()> is_reporter_;
};

}  // namespace varda::controllers::incrementallearning
