// What the status of JointInferenceServices says, as metrics: docs/reference/metrics.md has the list.
#pragma once

#include <functional>

#include "base/metric_collector.h"
#include "runtime/informer.h"

namespace varda::controllers {

/// Told from the cache, so that a service that is gone is gone from the metrics too. The counts are those of the status: sums over
/// all nodes that survive restarts, and are behind the servers' own by the seconds that a status may be.
class JointMetrics final : public metrics::Collector {
 public:
  /// While `told` is false there is nothing to collect: of several operators one tells, else sums would count twice. `caches` and
  /// what `told` refers to outlive calls of collect().
  JointMetrics(const runtime::Caches& caches, std::function<bool()> told) : caches_(caches), told_(std::move(told)) {}

  void collect(metrics::Samples& out) const override;

 private:
  const runtime::Caches& caches_;
  const std::function<bool()> told_;
};

}  // namespace varda::controllers
