#include "agent/desired.h"

#include "base/log.h"

namespace varda::agent {
namespace {

constexpr std::string_view kDesired = "desired";

Result<std::optional<Desired>> read(Journal& journal) {
  TRY(const auto kept, journal.get(kDesired));
  if (!kept.is_object()) return std::optional<Desired>();
  TRY(auto node, api::EdgeNode::from_json(
                     codec::Json::object({{"apiVersion", api::EdgeNode::resource().api_version()},
                                          {"kind", api::EdgeNode::resource().kind},
                                          {"metadata", codec::Json::object({{"name", "self"}})},
                                          {"spec", kept["spec"]}})));
  return std::optional(
      Desired{kept["uid"].as_string(), kept["generation"].as_integer(), std::move(node.spec)});
}

}  // namespace

std::optional<Desired> read_desired(Journal& journal) {
  auto desired = read(journal);
  if (desired.ok()) return std::move(*desired);
  log::error("persisted work list cannot be read", {{"error", desired.error()}});
  return std::nullopt;
}

Status keep_desired(Journal& journal, const Desired& desired) {
  return journal.put(kDesired, codec::Json::object({{"uid", desired.uid},
                                                    {"generation", desired.generation},
                                                    {"spec", desired.spec.to_json()}}));
}

bool says_nothing(const api::EdgeNode& node) {
  const api::EdgeNodeSpec& spec = node.spec;
  return node.metadata.generation <= 1 && spec.models.empty() && spec.datasets.empty() &&
         spec.workers.empty() && spec.shares.empty() && spec.replicas.empty();
}

}  // namespace varda::agent
