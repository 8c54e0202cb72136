#include "controllers/edgenode/plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "api/kind.h"
#include "controllers/dataset/dataset.h"
#include "controllers/inferencemodel/inferencemodel.h"
#include "hosting/chosen_model.h"
#include "hosting/node_limits.h"

namespace varda::controllers::edgenode {

namespace {

constexpr std::size_t kKeyBytesShown = 400;  // bytes of a left-out item's key in a message

/// One requested item and its age.
template <typename Item>
struct Candidate {
  std::string since;  // of the object, RFC 3339 in UTC: sorts by time
  Item item;
  std::size_t turn = 0;  // takes precedence over age: items of different owners alternate
};

/// Why the API server would reject a list with the item; "": it accepts the list.
template <typename Item>
std::string refusal(const Item& item, std::vector<Item> api::EdgeNodeSpec::*list) {
  static const api::Validator validator(api::EdgeNode::kind().schema->find("spec")->schema);
  api::EdgeNodeSpec alone;
  (alone.*list).push_back(item);
  const auto causes = validator.validate(alone.to_json());
  if (causes.empty()) return "";
  const std::string& field = causes.front().field;  // models[0].modelName
  const auto item_ends = field.find("].");
  return (item_ends == std::string::npos ? "" : field.substr(item_ends + 2) + ": ") +
         causes.front().message;
}

/// Removes items that the server would reject; the older one wins a duplicate key.
template <typename Item>
void leave_out_refused(std::vector<Candidate<Item>>& candidates,
                       std::vector<Item> api::EdgeNodeSpec::*list,
                       std::vector<std::string>& left_out) {
  const auto age = [](const Candidate<Item>& candidate) {
    return std::tie(candidate.since, candidate.item.key);
  };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const auto& a, const auto& b) { return age(a) < age(b); });
  std::set<std::string> keys;
  std::erase_if(candidates, [&](const Candidate<Item>& candidate) {
    std::string why = refusal(candidate.item, list);
    if (why.empty() && !keys.insert(candidate.item.key).second)
      why = "another item has the same key";
    if (!why.empty()) left_out.push_back(candidate.item.key.substr(0, kKeyBytesShown) + ": " + why);
    return !why.empty();
  });
}

/// The oldest acceptable items, sorted by key.
template <typename Item>
std::vector<Item> oldest(std::vector<Candidate<Item>> candidates,
                         std::vector<Item> api::EdgeNodeSpec::*list, std::size_t max,
                         std::vector<std::string>& left_out) {
  leave_out_refused(candidates, list, left_out);
  const auto turn = [](const Candidate<Item>& candidate) {
    return std::tie(candidate.turn, candidate.since, candidate.item.key);
  };
  std::sort(candidates.begin(), candidates.end(),
            [&](const auto& a, const auto& b) { return turn(a) < turn(b); });
  if (candidates.size() > max) candidates.resize(max);
  std::sort(candidates.begin(), candidates.end(),
            [](const auto& a, const auto& b) { return a.item.key < b.item.key; });
  std::vector<Item> items;
  for (auto& candidate : candidates) items.push_back(std::move(candidate.item));
  return items;
}

template <typename Item>
std::vector<Item> valid(std::vector<Item> items, std::vector<Item> api::EdgeNodeSpec::*list,
                        std::vector<std::string>& left_out) {
  std::vector<Candidate<Item>> candidates;
  for (Item& item : items) candidates.push_back({"", std::move(item)});
  const std::size_t all = candidates.size();
  return oldest(std::move(candidates), list, all, left_out);
}

/// Gives each namespace one turn per worker. Each job's first worker comes before any job's second.
/// On input, `turn` is the worker's number within its job.
void share_by_namespace(std::vector<Candidate<api::EdgeWorker>>& candidates) {
  std::map<std::string, std::vector<Candidate<api::EdgeWorker>*>> namespaces;
  for (auto& candidate : candidates)
    namespaces[candidate.item.key.substr(0, candidate.item.key.find('/'))].push_back(&candidate);
  for (auto& [name, all] : namespaces) {
    const auto order = [](const Candidate<api::EdgeWorker>* candidate) {
      return std::tie(candidate->turn, candidate->since, candidate->item.key);
    };
    std::sort(all.begin(), all.end(),
              [&](const auto* a, const auto* b) { return order(a) < order(b); });
    for (std::size_t i = 0; i < all.size(); ++i) all[i]->turn = i;
  }
}

template <typename Datasets>
void add_candidates(const Datasets& datasets, const std::string& node,
                    std::vector<Candidate<api::EdgeDataset>>& candidates) {
  for (const auto& dataset : datasets) {
    if (dataset->spec.node_name != node) continue;
    if (auto item = dataset::work_for(dataset::view(*dataset)))
      candidates.push_back({dataset->metadata.creation_timestamp, std::move(*item)});
  }
}

template <typename Datasets>
void add_claims(const Datasets& datasets, std::vector<replication::ReplicationClaim>& claims) {
  for (const auto& dataset : datasets) {
    if (auto claim = dataset::claim_of(dataset::view(*dataset)))
      claims.push_back(std::move(*claim));
  }
}

}  // namespace

api::EdgeNodeSpec plan_edge_node(const api::EdgeNode& node, const EdgeNodeWorld& world,
                                 std::vector<std::string>* left_out) {
  std::vector<std::string> refused;
  api::EdgeNodeSpec spec;
  std::vector<Candidate<api::EdgeModel>> models;
  for (const auto& model : world.models) {
    if (!model->spec.on_edge() || hosting::place(*model, world.nodes).node != node.metadata.name)
      continue;
    const api::Pod* pod = inferencemodel::edge_pod(*model, world.pods);
    const hosting::ServerEntry* server = nullptr;
    if (world.servers != nullptr) {
      if (const auto found =
              world.servers->find(inferencemodel::served_framework(*model, &node, pod));
          found != world.servers->end())
        server = &found->second;
    }
    if (auto item = inferencemodel::work_for(*model, node, pod, server, world.keys.get()))
      models.push_back({model->metadata.creation_timestamp, std::move(*item)});
  }
  std::vector<Candidate<api::EdgeWorker>> workers;
  for (const hosting::NodeWork& job : world.jobs) {
    for (const api::EdgeModel& model : job.models) models.push_back({job.since, model});
    for (const api::EdgeWorker& worker : job.workers)
      workers.push_back(
          {job.since, worker, static_cast<std::size_t>(&worker - job.workers.data())});
  }
  share_by_namespace(workers);
  // Left-out models and workers get the condition NodeFull.
  spec.models =
      oldest(std::move(models), &api::EdgeNodeSpec::models, hosting::kModelsPerNode, refused);
  spec.workers =
      oldest(std::move(workers), &api::EdgeNodeSpec::workers, hosting::kWorkersPerNode, refused);
  std::vector<Candidate<api::EdgeDataset>> datasets;
  add_candidates(world.datasets, node.metadata.name, datasets);
  add_candidates(world.sedna_datasets, node.metadata.name, datasets);
  // Left-out datasets get the condition TooManyDatasets.
  spec.datasets =
      oldest(std::move(datasets), &api::EdgeNodeSpec::datasets, dataset::kDatasetsPerNode, refused);
  std::vector<replication::ReplicationClaim> claims = world.claims;
  add_claims(world.datasets, claims);
  add_claims(world.sedna_datasets, claims);
  if (!claims.empty()) {
    replication::ReplicationWork work =
        replication::replication_for(node.metadata.name, claims, {world.nodes, world.edge_nodes});
    spec.shares = valid(std::move(work.shares), &api::EdgeNodeSpec::shares, refused);
    spec.replicas = valid(std::move(work.replicas), &api::EdgeNodeSpec::replicas, refused);
  }
  spec.files = valid(world.files, &api::EdgeNodeSpec::files, refused);
  if (spec.files.size() > api::EdgeFile::kMax) spec.files.resize(api::EdgeFile::kMax);
  if (left_out != nullptr) *left_out = std::move(refused);
  return spec;
}

codec::Json join_workers(const codec::Json& current, const codec::Json& planned,
                         const std::vector<std::string>& kinds) {
  using codec::Json;
  std::vector<Json> all = planned.as_array();
  for (const Json& worker : current.as_array()) {
    const std::string& owner = worker["owner"].as_string();
    if (std::find(kinds.begin(), kinds.end(), owner.substr(0, owner.find('/'))) != kinds.end())
      continue;
    const auto same = [&worker](const Json& one) { return one["key"] == worker["key"]; };
    if (std::none_of(all.begin(), all.end(), same) && all.size() < hosting::kWorkersPerNode)
      all.push_back(worker);
  }
  std::stable_sort(all.begin(), all.end(), [](const Json& a, const Json& b) {
    return a["key"].as_string() < b["key"].as_string();
  });
  return Json(std::move(all));
}

}  // namespace varda::controllers::edgenode
