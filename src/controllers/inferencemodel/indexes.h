// Index functions for InferenceModels and their pods (runtime::Watches::indexes). So a change of
// one node or one model does not scan thousands.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/core/pod.h"
#include "controllers/inferencemodel/inferencemodel.h"

namespace varda::controllers::inferencemodel {

/// Models of the edge layer, by at_port() of port and named node ("" with a nodeSelector), and by
/// at_port() of the port alone.
inline constexpr const char* kByPort = "edge port";
std::vector<std::string> index_by_port(const api::InferenceModel& model);
std::string at_port(std::int64_t port);
std::string at_port(std::int64_t port, std::string_view node);

/// Models of the cloud layer with a node port and a ready replica, by the address in status.url; ""
/// without a URL.
inline constexpr const char* kByAddress = "node port address";
std::vector<std::string> index_by_address(const api::InferenceModel& model);

/// Pods, by the model's key from the label, as text.
inline constexpr const char* kByModel = "model";
std::vector<std::string> index_by_model(const api::Pod& pod);

}  // namespace varda::controllers::inferencemodel
