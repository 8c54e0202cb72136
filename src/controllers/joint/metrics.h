// Metrics from the status of JointInferenceServices; docs/reference/metrics.md lists them.
#pragma once

#include <functional>

#include "base/metric_collector.h"
#include "runtime/informer.h"

namespace varda::controllers::joint {

/// Reads the cache, so the metrics of a deleted service disappear. The counts are those of the
/// status: sums over all nodes, which survive restarts. They lag behind the servers' own counts by
/// seconds, like the status.
class JointMetrics final : public metrics::Collector {
 public:
  /// collect() gives nothing while `is_reporter()` is false: sums over several reporting operators
  /// would count twice. `caches`, and objects that `is_reporter` uses, outlive calls of collect().
  JointMetrics(const runtime::Caches& caches, std::function<bool()> is_reporter)
      : caches_(caches), is_reporter_(std::move(is_reporter)) {}

  void collect(metrics::Samples& out) const override;

 private:
  const runtime::Caches& caches_;
  const std::function<bool()> is_reporter_;
};

}  // namespace varda::controllers::joint
