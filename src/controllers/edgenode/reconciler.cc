#include "controllers/edgenode/reconciler.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "controllers/edgenode/plan.h"
#include "controllers/inferencemodel/plan.h"
#include "controllers/model/plan.h"

namespace varda::controllers {

namespace {

using meta::ObjectKey;
using Keys = std::vector<ObjectKey>;

// Between two writes of the lists, for each item in them.
constexpr auto kPausePerItem = std::chrono::milliseconds(2);

Keys all_edge_nodes(const runtime::Caches& caches) {
  Keys keys;
  for (const auto& node : caches.of<api::EdgeNode>().list()) keys.push_back(node->metadata.key());
  return keys;
}

// Called with the new and the old version of a model, so the node it left hears of it too.
Keys nodes_of_model(const api::InferenceModel& model, const runtime::Caches& caches) {
  if (!model.spec.on_edge() && model.status.node.empty()) return {};
  if (model.spec.on_edge() && model.spec.node_name.empty()) return all_edge_nodes(caches);
  std::set<std::string> names{model.spec.node_name, model.status.node};
  Keys keys;
  for (const std::string& name : names) {
    if (!name.empty() && caches.of<api::EdgeNode>().get({"", name}) != nullptr) keys.push_back({"", name});
  }
  return keys;
}

template <runtime::Object T>
bool copies(const runtime::Caches& caches) {
  const auto all = caches.of<T>().list();
  return std::any_of(all.begin(), all.end(), [](const auto& object) { return object->spec.replication.has_value(); });
}

bool copies_any(const runtime::Caches& caches) {
  return copies<api::Dataset>(caches) || copies<api::SednaDataset>(caches) || copies<api::Model>(caches) ||
         copies<api::SednaModel>(caches);
}

// Called with the new and the old version of a Model: nothing else of it is a node's business.
template <api::Group G>
Keys nodes_of_copies(const api::ModelOf<G>& model, const runtime::Caches& caches) {
  return model.spec.replication ? all_edge_nodes(caches) : Keys();
}

template <api::Group G>
void add_model_claims(const runtime::Caches& caches, std::vector<ReplicationClaim>& claims) {
  for (const auto& model : caches.of<api::ModelOf<G>>().list()) {
    if (auto claim = claim_of({api::ModelOf<G>::resource(), model->metadata}, model->spec)) claims.push_back(std::move(*claim));
  }
}

// What a node reports of the files it has and copied is what others are told to copy.
Keys nodes_beside(const api::EdgeNode& node, const runtime::Caches& caches) {
  const bool takes_part =
      !node.status.shares.empty() || !node.status.replicas.empty() || !node.spec.shares.empty() || !node.spec.replicas.empty();
  if (!takes_part || !copies_any(caches)) return {};
  Keys keys = all_edge_nodes(caches);
  std::erase(keys, node.metadata.key());
  return keys;
}

// A label of one node can move a model that selects by labels from another.
Keys nodes_near(const api::Node& node, const runtime::Caches& caches) {
  for (const auto& model : caches.of<api::InferenceModel>().list()) {
    if (model->spec.on_edge() && model->spec.node_name.empty()) return all_edge_nodes(caches);
  }
  if (copies_any(caches)) return all_edge_nodes(caches);
  const ObjectKey key{"", node.metadata.name};
  if (caches.of<api::EdgeNode>().get(key) == nullptr) return {};
  return {key};
}

// Called with the new and the old version of a dataset, as with models.
template <api::Group G>
Keys node_of_dataset(const api::DatasetOf<G>& dataset, const runtime::Caches& caches) {
  if (dataset.spec.replication) return all_edge_nodes(caches);
  const ObjectKey key{"", dataset.spec.node_name};
  if (key.name.empty() || caches.of<api::EdgeNode>().get(key) == nullptr) return {};
  return {key};
}

Keys node_of_pod(const api::Pod& pod, const runtime::Caches& caches) {
  const ObjectKey key{"", pod.spec.node_name};
  if (key.name.empty() || !pod.metadata.labels.contains(std::string(kModelLabel))) return {};
  if (caches.of<api::EdgeNode>().get(key) == nullptr) return {};
  return {key};
}

}  // namespace

void EdgeNodeReconciler::watches(runtime::Watches<api::EdgeNode>& w) const {
  w.maps<api::InferenceModel>(nodes_of_model).maps<api::Node>(nodes_near).maps<api::Pod>(node_of_pod);
  w.maps<api::EdgeNode>(nodes_beside);
  w.maps<api::Model>(nodes_of_copies<api::Group::kEdgeai>).maps<api::SednaModel>(nodes_of_copies<api::Group::kSedna>);
  w.maps<api::Dataset>(node_of_dataset<api::Group::kEdgeai>).maps<api::SednaDataset>(node_of_dataset<api::Group::kSedna>);
}

Result<runtime::Action> EdgeNodeReconciler::reconcile(const Context& ctx, const api::EdgeNode& node, runtime::Writer& writer) {
  if (node.metadata.deleting()) return runtime::Action::await_change();
  const SteadyTime now = clock_.now();
  const auto next_write = next_write_.find(node.metadata.name);
  if (next_write != next_write_.end() && next_write->second > now) return runtime::Action::after(next_write->second - now);
  EdgeNodeWorld world;
  world.nodes = caches_.of<api::Node>().list();
  world.models = caches_.of<api::InferenceModel>().list();
  for (auto& pod : caches_.of<api::Pod>().list()) {
    if (pod->spec.node_name == node.metadata.name && pod->metadata.labels.contains(std::string(kModelLabel)))
      world.pods.push_back(std::move(pod));
  }
  for (auto& dataset : caches_.of<api::Dataset>().list()) {
    if (dataset->spec.node_name == node.metadata.name || dataset->spec.replication) world.datasets.push_back(std::move(dataset));
  }
  for (auto& dataset : caches_.of<api::SednaDataset>().list()) {
    if (dataset->spec.node_name == node.metadata.name || dataset->spec.replication)
      world.sedna_datasets.push_back(std::move(dataset));
  }
  if (copies_any(caches_)) {
    add_model_claims<api::Group::kEdgeai>(caches_, world.claims);
    add_model_claims<api::Group::kSedna>(caches_, world.claims);
    for (auto& other : caches_.of<api::EdgeNode>().list()) world.edge_nodes.emplace(other->metadata.name, other);
  }
  const codec::Json plan = plan_edge_node(node, world).to_json();
  // An empty list is said too. An object without one, as an agent makes it, is one that nobody has spoken to: to that agent it
  // takes nothing away, and without a word it would go on with what an object deleted meanwhile had asked for.
  std::map<std::string, codec::Json> lists;
  std::size_t items = 0;
  for (const char* name : {"models", "datasets", "shares", "replicas"}) {
    lists[name] = plan[name].is_null() ? codec::Json::array() : plan[name];
    items += lists[name].size();
  }
  bool writes = false;
  TRY_VOID(writer.edit(ctx, runtime::ObjectRef::of(node), runtime::Part::kWhole, [&](codec::Json& live) {
    writes = false;
    for (const auto& [name, list] : lists) {
      const codec::Json& there = std::as_const(live)["spec"][name];
      // Few nodes copy files: where none were and none are, nothing is said.
      if (there == list || (there.is_null() && list.empty() && name != "models" && name != "datasets")) continue;
      writes = true;
      live["spec"].set(name, list);
    }
  }));
  const auto pause = kPausePerItem * items;
  if (writes) next_write_[node.metadata.name] = clock_.now() + pause;
  return runtime::Action::await_change();
}

Result<runtime::Action> EdgeNodeReconciler::gone(const Context& /*ctx*/, const ObjectKey& key, runtime::Writer& /*writer*/) {
  next_write_.erase(key.name);
  return runtime::Action::await_change();
}

}  // namespace varda::controllers
