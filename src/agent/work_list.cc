#include "agent/work_list.h"

#include "base/log.h"

namespace varda::agent {
namespace {

constexpr std::string_view kWorkList = "desired";

Result<std::optional<WorkList>> read(StateStore& state_store) {
  TRY(const auto kept, state_store.get(kWorkList));
  if (!kept.is_object()) return std::optional<WorkList>();
  TRY(auto node, api::EdgeNode::from_json(
                     codec::Json::object({{"apiVersion", api::EdgeNode::resource().api_version()},
                                          {"kind", api::EdgeNode::resource().kind},
                                          {"metadata", codec::Json::object({{"name", "self"}})},
                                          {"spec", kept["spec"]}})));
  return std::optional(
      WorkList{kept["uid"].as_string(), kept["generation"].as_integer(), std::move(node.spec)});
}

}  // namespace

std::optional<WorkList> read_work_list(StateStore& state_store) {
  auto desired = read(state_store);
  if (desired.ok()) return std::move(*desired);
  log::error("persisted work list cannot be read", {{"error", desired.error()}});
  return std::nullopt;
}

Status write_work_list(StateStore& state_store, const WorkList& desired) {
  return state_store.put(kWorkList, codec::Json::object({{"uid", desired.uid},
                                                         {"generation", desired.generation},
                                                         {"spec", desired.spec.to_json()}}));
}

bool is_unassigned(const api::EdgeNode& node) {
  const api::EdgeNodeSpec& spec = node.spec;
  return node.metadata.generation <= 1 && spec.models.empty() && spec.datasets.empty() &&
         spec.workers.empty() && spec.shares.empty() && spec.replicas.empty();
}

}  // namespace varda::agent
