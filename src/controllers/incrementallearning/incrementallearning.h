// IncrementalLearningJob for other folders: the controller, and the work of jobs for nodes.
#pragma once

#include <memory>

#include "hosting/kind_controllers.h"
#include "hosting/servers.h"
#include "runtime/manager.h"

namespace varda::controllers::incrementallearning {

/// Adds the controller. `manager` outlives the result.
std::unique_ptr<hosting::KindControllers> add(runtime::Manager& manager,
                                              const hosting::Options& options);

}  // namespace varda::controllers::incrementallearning
