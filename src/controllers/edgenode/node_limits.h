// How much one node is told at once, and what is said of whatever it is not told. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "api/edgeai/edge_node.h"
#include "controllers/inferencemodel/placement.h"

namespace varda::controllers {

inline constexpr std::size_t kModelsPerNode = 128;  // maxItems of EdgeNode.spec.models
inline constexpr std::size_t kWorkersPerNode = 64;  // and of EdgeNode.spec.workers

/// NodeFull: the node is told as many models as there may be, and this one is none of them.
std::optional<Problem> no_room_for_model(const api::EdgeNode& node, std::string_view key);
/// NodeFull, in the same way, for a worker of the job with the uid.
std::optional<Problem> no_room_for_worker(const api::EdgeNode& node, std::string_view key, std::string_view job_uid);

}  // namespace varda::controllers
