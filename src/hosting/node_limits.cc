#include "hosting/node_limits.h"

#include <string>

namespace varda::hosting {

namespace {

Problem full(const api::EdgeNode& node, std::size_t most, const char* what) {
  return {"NodeFull", "node " + node.metadata.name + " has " + std::to_string(most) + " " + what +
                          ", which is the maximum: use another node"};
}

}  // namespace

std::optional<Problem> no_room_for_model(const api::EdgeNode& node, std::string_view key) {
  if (node.spec.models.size() < kModelsPerNode || node.spec.find_model(key) != nullptr) return {};
  return full(node, kModelsPerNode, "models");
}

std::optional<Problem> no_room_for_worker(const api::EdgeNode& node, std::string_view key,
                                          std::string_view job_uid) {
  if (node.spec.workers.size() < kWorkersPerNode) return {};
  const api::EdgeWorker* listed = node.spec.find_worker(key);
  if (listed != nullptr && listed->uid == job_uid) return {};
  return full(node, kWorkersPerNode, "workers of jobs");
}

}  // namespace varda::hosting
