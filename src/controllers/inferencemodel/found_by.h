// By what the caches find models and their pods (runtime::Watches::indexes), so that a change of one node or one model is no look
// at all of thousands.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/core/pod.h"

namespace varda::controllers {

/// Of InferenceModels in the edge layer: the node that one names, "" where it selects one; and the one that it is on.
inline constexpr const char* kByNode = "edge node";
std::vector<std::string> found_by_node(const api::InferenceModel& model);

/// Of InferenceModels in the edge layer: at_port() of the node that one names, "" where it selects one; and its port alone.
inline constexpr const char* kByPort = "edge port";
std::vector<std::string> found_by_port(const api::InferenceModel& model);
std::string at_port(std::int64_t port);
std::string at_port(std::int64_t port, std::string_view node);

/// Of InferenceModels in the cloud layer that answer at a port of nodes: the address that one is told with, "" as long as it has
/// none.
inline constexpr const char* kByAddress = "node port address";
std::vector<std::string> found_by_address(const api::InferenceModel& model);

/// Of Pods: the key of the model that the label names, as text.
inline constexpr const char* kByModel = "model";
std::vector<std::string> found_by_model(const api::Pod& pod);
/// Of Pods of models: the node they are on.
inline constexpr const char* kOfModelsOn = "of models on";
std::vector<std::string> of_models_on(const api::Pod& pod);

}  // namespace varda::controllers
