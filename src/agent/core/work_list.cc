#include "agent/core/work_list.h"

#include <utility>

#include "base/log.h"

namespace varda::agent::core {
namespace {

constexpr std::string_view kWorkList = "desired";

Result<WorkList> decode(const codec::Json& json) {
  TRY(auto node, api::EdgeNode::from_json(
                     codec::Json::object({{"apiVersion", api::EdgeNode::resource().api_version()},
                                          {"kind", api::EdgeNode::resource().kind},
                                          {"metadata", codec::Json::object({{"name", "self"}})},
                                          {"spec", json["spec"]}})));
  return WorkList{{json["uid"].as_string(), json["generation"].as_integer()}, std::move(node.spec)};
}

codec::Json encode(const WorkList& list) {
  return codec::Json::object(
      {{"uid", list.id.uid}, {"generation", list.id.generation}, {"spec", list.spec.to_json()}});
}

bool is_unassigned(const api::EdgeNode& node) {
  return node.metadata.generation <= 1 && node.spec.to_json().empty();
}

}  // namespace

std::optional<WorkList> WorkListStore::load() {
  auto json = state_store_.get(kWorkList);
  if (json.ok() && !json->is_object()) return std::nullopt;
  auto list = json.ok() ? decode(*json) : Result<WorkList>(json.error());
  if (!list.ok()) {
    log::error("persisted work list cannot be read", {{"error", list.error()}});
    return std::nullopt;
  }
  last_ = std::move(*json);
  persisted_ = true;
  return std::move(*list);
}

std::optional<WorkList> WorkListStore::accept(const api::EdgeNode& node) {
  if (is_unassigned(node) && !last_.is_null()) return std::nullopt;
  WorkList list{{node.metadata.uid, node.metadata.generation}, node.spec};
  codec::Json json = encode(list);
  const bool same = json == last_;
  if (same && persisted_) return std::nullopt;
  last_ = std::move(json);
  const Status written = state_store_.put(kWorkList, last_);
  persisted_ = written.ok();
  if (!written.ok())
    log::error("work list not persisted; a restart without network would lose it",
               {{"error", written.error()}});
  if (same) return std::nullopt;
  return list;
}

}  // namespace varda::agent::core
