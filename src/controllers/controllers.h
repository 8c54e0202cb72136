// The operator's controllers, put together: what `varda operator` and `varda up` add to their manager.
#pragma once

#include <memory>
#include <vector>

#include "base/metric_collector.h"
#include "controllers/inferencemodel/options.h"
#include "runtime/manager.h"

namespace varda::controllers {

struct Options {
  InferenceModelOptions inference_models;
};

/// Keeps the reconcilers alive.
class Controllers {
 public:
  virtual ~Controllers() = default;
  /// What the objects' status says, while the manager leads: for what answers /metrics. Valid as long as this; to be asked only
  /// while the manager lives.
  virtual std::vector<const metrics::Collector*> metrics() const = 0;
};

/// Adds the controllers of all kinds of ours. Before manager.run(); the result outlives it. The kinds' CRDs must be in the API
/// server by the time the manager runs.
std::unique_ptr<Controllers> add_all(runtime::Manager& manager, Options options);

}  // namespace varda::controllers
