// All controllers of the operator: `varda operator` and `varda up` add them to the manager.
#pragma once

#include <memory>
#include <vector>

#include "base/metric_collector.h"
#include "hosting/servers.h"
#include "runtime/manager.h"

namespace varda::controllers {

/// Owns the reconcilers.
class Controllers {
 public:
  virtual ~Controllers() = default;
  /// Metrics from the objects' status, for /metrics; empty unless the manager leads. Valid as long
  /// as this object; call only while the manager lives.
  virtual std::vector<const metrics::Collector*> metrics() const = 0;
};

/// Adds the controllers of all our kinds. Call before manager.run(); the result outlives the
/// manager. The CRDs must exist before the manager runs.
std::unique_ptr<Controllers> add_all(runtime::Manager& manager, const hosting::Options& options);

}  // namespace varda::controllers
