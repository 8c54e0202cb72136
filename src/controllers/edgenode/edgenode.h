// EdgeNode for other folders: the only writer of EdgeNode.spec.
#pragma once

#include <memory>
#include <vector>

#include "hosting/kind_controllers.h"
#include "hosting/servers.h"
#include "runtime/manager.h"

namespace varda::controllers::edgenode {

/// Adds the controller. `manager`, and `jobs`, the kinds with workers, outlive the result.
std::unique_ptr<hosting::KindControllers> add(runtime::Manager& manager,
                                              const hosting::Options& options,
                                              std::vector<const hosting::JobWork*> jobs);

}  // namespace varda::controllers::edgenode
