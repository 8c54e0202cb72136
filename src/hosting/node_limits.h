// Limits of one node's work list, and the problem of an item that does not fit. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "api/edgeai/edge_node.h"
#include "hosting/placement.h"

namespace varda::hosting {

inline constexpr std::size_t kModelsPerNode = 256;  // maxItems of EdgeNode.spec.models
inline constexpr std::size_t kWorkersPerNode = 64;  // maxItems of EdgeNode.spec.workers

/// NodeFull: the node's list of models is full and lacks this one.
std::optional<Problem> no_room_for_model(const api::EdgeNode& node, std::string_view key);
/// NodeFull: the same for a worker of the job with the uid.
std::optional<Problem> no_room_for_worker(const api::EdgeNode& node, std::string_view key,
                                          std::string_view job_uid);

}  // namespace varda::hosting
