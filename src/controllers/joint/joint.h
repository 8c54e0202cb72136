// JointInferenceService for other folders: the controller, and the Models that services need.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/sedna/joint_inference_service.h"
#include "hosting/kind_controllers.h"
#include "hosting/servers.h"
#include "runtime/manager.h"

namespace varda::controllers::joint {

/// Adds the controller. `manager` outlives the result.
std::unique_ptr<hosting::KindControllers> add(runtime::Manager& manager,
                                              const hosting::Options& options);

/// Services by the keys of the Models and InferenceModels that their tiers name, and of children.
inline constexpr const char* kByModel = "model";
std::vector<std::string> index_by_model(const api::JointInferenceService& service);

/// References to Models of tiers that our servers run. A user's worker loads its model itself.
std::vector<api::ModelReference> served_models(const api::JointInferenceService& service);

}  // namespace varda::controllers::joint
