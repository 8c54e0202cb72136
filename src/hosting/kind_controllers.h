// The controllers of one kind. Each kind's public header has a function add(), which adds them to
// the manager and returns their owner.
#pragma once

#include "base/metric_collector.h"
#include "hosting/node_work.h"

namespace varda::hosting {

/// Owns the reconcilers of a kind. Outlives the manager.
class KindControllers {
 public:
  virtual ~KindControllers() = default;
  /// For /metrics; null: the kind has none. Empty unless the manager leads.
  virtual const metrics::Collector* metrics() const { return nullptr; }
  /// The work of the kind's jobs on nodes; null: the kind has no workers.
  virtual const JobWork* job_work() const { return nullptr; }
};

}  // namespace varda::hosting
