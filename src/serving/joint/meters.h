// Prometheus metrics of a model with tiers. tiers::Statistics counts the same numbers.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "base/metrics.h"
#include "tiers/breaker.h"
#include "tiers/machine.h"

namespace varda::serving::joint {

/// Metrics of one tier. References into a registry.
struct TierMeters {
  TierMeters(metrics::Registry& registry, const std::string& model, const std::string& tier);

  metrics::Counter& answered;     // varda_joint_answered_total
  metrics::Histogram& seconds;    // varda_joint_seconds: duration of answered calls
  metrics::Gauge& breaker_state;  // varda_joint_breaker_state: 0 closed, 1 half-open, 2 open
};

/// Metrics of one model.
class Meters {
 public:
  Meters(metrics::Registry& registry, const std::string& model);

  std::shared_ptr<TierMeters> tier(const std::string& name);
  /// Called once per request, after its end. `tiers` are in the order of the route.
  void count(const tiers::Summary& summary, const tiers::Route& route,
             const std::vector<std::shared_ptr<TierMeters>>& tiers, std::uint64_t bytes_sent);

 private:
  metrics::Registry& registry_;
  const std::string model_;
  metrics::Counter& inferences_;  // varda_joint_inferences_total
  metrics::Counter& hard_;        // varda_joint_hard_total
  metrics::Counter& bytes_sent_;  // varda_joint_sent_bytes_total
};

/// The state as the gauge's value.
double breaker_number(tiers::Breaker::State state);

}  // namespace varda::serving::joint
