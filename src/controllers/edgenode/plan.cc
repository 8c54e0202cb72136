#include "controllers/edgenode/plan.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "controllers/dataset/plan.h"
#include "controllers/inferencemodel/plan.h"

namespace varda::controllers {

namespace {

constexpr std::size_t kModelsMax = 128;  // maxItems of spec.models
constexpr std::size_t kWorkersMax = 64;  // and of spec.workers

/// One thing to do, and how old the wish is.
template <typename Item>
struct Wish {
  std::string since;  // of the object, as RFC 3339 in UTC: sorts by time
  Item item;
};

/// The oldest ones, in the order of keys.
template <typename Item>
std::vector<Item> oldest(std::vector<Wish<Item>> wishes, std::size_t max) {
  const auto age = [](const Wish<Item>& wish) { return std::tie(wish.since, wish.item.key); };
  std::sort(wishes.begin(), wishes.end(), [&](const auto& a, const auto& b) { return age(a) < age(b); });
  if (wishes.size() > max) wishes.resize(max);
  std::sort(wishes.begin(), wishes.end(), [](const auto& a, const auto& b) { return a.item.key < b.item.key; });
  std::vector<Item> items;
  for (auto& wish : wishes) items.push_back(std::move(wish.item));
  return items;
}

template <typename Datasets>
void add_wishes(const Datasets& datasets, const std::string& node, std::vector<Wish<api::EdgeDataset>>& wishes) {
  for (const auto& dataset : datasets) {
    if (dataset->spec.node_name != node) continue;
    if (auto item = work_for(view(*dataset))) wishes.push_back({dataset->metadata.creation_timestamp, std::move(*item)});
  }
}

template <typename Datasets>
void add_claims(const Datasets& datasets, std::vector<ReplicationClaim>& claims) {
  for (const auto& dataset : datasets) {
    if (auto claim = claim_of(view(*dataset))) claims.push_back(std::move(*claim));
  }
}

}  // namespace

api::EdgeNodeSpec plan_edge_node(const api::EdgeNode& node, const EdgeNodeWorld& world) {
  api::EdgeNodeSpec spec;
  std::vector<Wish<api::EdgeModel>> models;
  for (const auto& model : world.models) {
    if (!model->spec.on_edge() || place(*model, world.nodes).node != node.metadata.name) continue;
    const ServerEntry* server = nullptr;
    if (world.servers != nullptr) {
      if (const auto found = world.servers->find(model->spec.framework_type); found != world.servers->end())
        server = &found->second;
    }
    if (auto item = work_for(*model, node, edge_pod(*model, world.pods), server))
      models.push_back({model->metadata.creation_timestamp, std::move(*item)});
  }
  std::vector<Wish<api::EdgeWorker>> workers;
  for (const NodeWork& job : world.jobs) {
    for (const api::EdgeModel& model : job.models) models.push_back({job.since, model});
    for (const api::EdgeWorker& worker : job.workers) workers.push_back({job.since, worker});
  }
  spec.models = oldest(std::move(models), kModelsMax);  // the rest gets the condition NodeFull
  spec.workers = oldest(std::move(workers), kWorkersMax);
  std::vector<Wish<api::EdgeDataset>> datasets;
  add_wishes(world.datasets, node.metadata.name, datasets);
  add_wishes(world.sedna_datasets, node.metadata.name, datasets);
  spec.datasets = oldest(std::move(datasets), kDatasetsPerNode);  // the rest gets the condition TooManyDatasets
  std::vector<ReplicationClaim> claims = world.claims;
  add_claims(world.datasets, claims);
  add_claims(world.sedna_datasets, claims);
  if (!claims.empty()) {
    ReplicationWork work = replication_for(node.metadata.name, claims, {world.nodes, world.edge_nodes});
    spec.shares = std::move(work.shares);
    spec.replicas = std::move(work.replicas);
  }
  return spec;
}

codec::Json join_workers(const codec::Json& there, const codec::Json& ours, const std::vector<std::string>& kinds) {
  using codec::Json;
  std::vector<Json> all = ours.as_array();
  for (const Json& worker : there.as_array()) {
    const std::string& owner = worker["owner"].as_string();
    if (std::find(kinds.begin(), kinds.end(), owner.substr(0, owner.find('/'))) != kinds.end()) continue;
    const auto same = [&worker](const Json& one) { return one["key"] == worker["key"]; };
    if (std::none_of(all.begin(), all.end(), same) && all.size() < kWorkersMax) all.push_back(worker);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Json& a, const Json& b) { return a["key"].as_string() < b["key"].as_string(); });
  return Json(std::move(all));
}

}  // namespace varda::controllers
