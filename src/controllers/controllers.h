// The operator's controllers, put together: what `varda operator` and `varda up` add to their manager.
#pragma once

#include <memory>

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
};

/// Adds the controllers of all kinds of ours. Before manager.run(); the result outlives it. The kinds' CRDs must be in the API
/// server by the time the manager runs.
std::unique_ptr<Controllers> add_all(runtime::Manager& manager, Options options);

}  // namespace varda::controllers
