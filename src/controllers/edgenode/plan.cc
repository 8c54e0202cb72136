#include "controllers/edgenode/plan.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "controllers/inferencemodel/plan.h"

namespace varda::controllers {

namespace {

constexpr std::size_t kModelsMax = 128;  // maxItems of spec.models

}  // namespace

api::EdgeNodeSpec plan_edge_node(const api::EdgeNode& node, const EdgeNodeWorld& world) {
  std::vector<std::pair<const api::InferenceModel*, api::EdgeModel>> work;
  for (const auto& model : world.models) {
    if (!model->spec.on_edge() || place(*model, world.nodes).node != node.metadata.name) continue;
    if (auto item = work_for(*model, node, edge_pod(*model, world.pods))) work.emplace_back(model.get(), std::move(*item));
  }
  const auto age = [](const auto& one) { return std::tie(one.first->metadata.creation_timestamp, one.second.key); };
  std::sort(work.begin(), work.end(), [&](const auto& a, const auto& b) { return age(a) < age(b); });
  if (work.size() > kModelsMax) work.resize(kModelsMax);  // the rest gets the condition NodeFull
  std::sort(work.begin(), work.end(), [](const auto& a, const auto& b) { return a.second.key < b.second.key; });
  api::EdgeNodeSpec spec;
  for (auto& [model, item] : work) spec.models.push_back(std::move(item));
  return spec;
}

}  // namespace varda::controllers
