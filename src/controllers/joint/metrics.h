// Metrics from the status of JointInferenceServices; docs/reference/metrics.md lists them.
#pragma once

#include <functional>

#include "base/metric_collector.h"
#include "runtime/informer.h"

namespace varda::controllers {

/// Reads the cache, so the metrics of a deleted service disappear. The counts are those of the
/// status: sums over all nodes, which survive restarts. They lag behind the servers' own counts by
/// seconds, like the status.
class JointMetrics final : public metrics::Collector {
 public:
  /// Collects nothing while `told` is false: if several operators reported, sums would count twice.
  /// `caches` and what `told` refers to outlive calls of collect().
  JointMetrics(const runtime::Caches& caches, std::function<bool()> told) : caches_(caches), told_(std::move(told)) {}

  void collect(metrics::Samples& out) const override;

 private:
  const runtime::Caches& caches_;
  const std::function<bool()> told_;
};

}  // namespace varda::controllers
