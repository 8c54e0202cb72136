#include "controllers/edgenode/reconciler.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "controllers/dataset/dataset.h"
#include "controllers/edgenode/edgenode.h"
#include "controllers/edgenode/plan.h"
#include "controllers/inferencemodel/inferencemodel.h"
#include "controllers/model/model.h"
#include "controllers/replication/replication.h"
#include "hosting/labels.h"

namespace varda::controllers::edgenode {

namespace {

using dataset::claims_in;
using meta::ObjectKey;
using model::claims_in;
using Keys = std::vector<ObjectKey>;

// The pause between two writes of the lists, per item. Many changes in one write lengthen the
// pause, since more are probably coming. A slow write lengthens it too, since the server is busy.
constexpr auto kPausePerItem = std::chrono::milliseconds(2);
constexpr auto kPausePerItemAndChange = std::chrono::milliseconds(1);
constexpr int kPauseOfTime = 40;
constexpr auto kPausePerItemMax = std::chrono::milliseconds(10);
// Limit of remembered archive groups; beyond it, all are forgotten and givers are read from work
// lists again.
constexpr std::size_t kGroupsMax = 4096;

Keys all_edge_nodes(const runtime::Caches& caches) {
  Keys keys;
  for (const auto& node : caches.of<api::EdgeNode>().list()) keys.push_back(node->metadata.key());
  return keys;
}

// Called with the old and new version of a model, so that the former node is requeued too.
Keys nodes_of_model(const api::InferenceModel& model, const runtime::Caches& caches) {
  if (!model.spec.on_edge() && model.status.node.empty()) return {};
  if (model.spec.on_edge() && model.spec.node_name.empty()) return all_edge_nodes(caches);
  std::set<std::string> names{model.spec.node_name, model.status.node};
  Keys keys;
  for (const std::string& name : names) {
    if (!name.empty() && caches.of<api::EdgeNode>().get({"", name}) != nullptr)
      keys.push_back({"", name});
  }
  return keys;
}

// Called with the old and new version of a Model; only its replication affects nodes.
template <api::Group G>
Keys nodes_of_copies(const api::ModelOf<G>& model, const runtime::Caches& caches) {
  Keys keys;
  for (const replication::ReplicationClaim& claim : claims_in(model))
    keys = nodes_of(claim, caches);
  return keys;
}

template <api::Group G>
void add_model_claims(const runtime::Caches& caches,
                      std::vector<replication::ReplicationClaim>& claims) {
  for (const auto& model : caches.of<api::ModelOf<G>>().list())
    for (replication::ReplicationClaim& claim : claims_in(*model))
      claims.push_back(std::move(claim));
}

template <typename T>
void add_claims(const runtime::Caches& caches, std::vector<replication::ReplicationClaim>& claims) {
  for (const auto& object : caches.of<T>().list())
    for (replication::ReplicationClaim& claim : claims_in(*object))
      claims.push_back(std::move(claim));
}

// All claims in the caches.
std::vector<replication::ReplicationClaim> all_claims(const runtime::Caches& caches) {
  std::vector<replication::ReplicationClaim> out;
  add_claims<api::Dataset>(caches, out);
  add_claims<api::SednaDataset>(caches, out);
  add_claims<api::Model>(caches, out);
  add_claims<api::SednaModel>(caches, out);
  return out;
}

// EdgeNodes that share a claim with a node, including that node. `labels` are the node's labels,
// which may be former ones.
Keys nodes_with(std::string_view node, const std::map<std::string, std::string>& labels,
                const runtime::Caches& caches) {
  std::set<ObjectKey> keys;
  for (const replication::ReplicationClaim& claim : all_claims(caches)) {
    if (claim.node != node && !replication::selects(claim.spec, labels)) continue;
    for (ObjectKey& key : nodes_of(claim, caches)) keys.insert(std::move(key));
  }
  return {keys.begin(), keys.end()};
}

// A node's report about its files affects the other nodes of the same claims.
Keys nodes_also(const api::EdgeNode& node, const runtime::Caches& caches) {
  return nodes_with(node.metadata.name, replication::labels_of(node.metadata.name, caches), caches);
}

// A node's labels select which nodes share its files.
Keys nodes_labelled(const api::Node& node, const runtime::Caches& caches) {
  return nodes_with(node.metadata.name, node.metadata.labels, caches);
}

// A node's labels can move a model that selects by labels away from another node.
Keys nodes_near(const api::Node& node, const runtime::Caches& caches) {
  for (const auto& model : caches.of<api::InferenceModel>().list()) {
    if (model->spec.on_edge() && model->spec.node_name.empty()) return all_edge_nodes(caches);
  }
  const ObjectKey key{"", node.metadata.name};
  if (caches.of<api::EdgeNode>().get(key) == nullptr) return {};
  return {key};
}

// Called with the old and new version of a dataset, like models.
template <api::Group G>
Keys node_of_dataset(const api::DatasetOf<G>& dataset, const runtime::Caches& caches) {
  Keys keys;
  for (const replication::ReplicationClaim& claim : claims_in(dataset))
    keys = nodes_of(claim, caches);
  const ObjectKey key{"", dataset.spec.node_name};
  if (keys.empty() && !key.name.empty() && caches.of<api::EdgeNode>().get(key) != nullptr)
    keys.push_back(key);
  return keys;
}

std::set<std::string, std::less<>> digests_of(const api::EdgeNode& node) {
  std::set<std::string, std::less<>> out;
  for (const api::EdgeModel& model : node.spec.models)
    for (const api::EdgeModelVersion& version : model.versions) out.insert(version.sha256);
  return out;
}

// Number of added, removed and changed items. Both lists are sorted by key, as this controller
// writes them; otherwise the count is too high.
std::size_t changes(const codec::Json& before, const codec::Json& now) {
  const auto &old = before.as_array(), &fresh = now.as_array();
  std::size_t count = 0;
  auto a = old.begin();
  for (auto b = fresh.begin(); b != fresh.end(); ++b) {
    const std::string& key = (*b)["key"].as_string();
    for (; a != old.end() && (*a)["key"].as_string() < key; ++a) ++count;
    const bool same_key = a != old.end() && (*a)["key"].as_string() == key;
    count += !same_key || *a != *b;
    a += same_key;
  }
  return count + static_cast<std::size_t>(old.end() - a);
}

Duration pause(std::size_t items, std::size_t changed, Duration took) {
  const Duration wanted =
      std::max<Duration>(kPausePerItemAndChange * items * changed, took * kPauseOfTime);
  return std::clamp<Duration>(wanted, kPausePerItem * items, kPausePerItemMax * items);
}

Keys node_of_pod(const api::Pod& pod, const runtime::Caches& caches) {
  const ObjectKey key{"", pod.spec.node_name};
  if (key.name.empty() || !pod.metadata.labels.contains(std::string(hosting::kModelLabel)))
    return {};
  if (caches.of<api::EdgeNode>().get(key) == nullptr) return {};
  return {key};
}

}  // namespace

void EdgeNodeReconciler::watches(runtime::Watches<api::EdgeNode>& w) const {
  w.indexes<api::Pod>(inferencemodel::kOfModelsOn, inferencemodel::of_models_on);
  w.maps<api::InferenceModel>(nodes_of_model)
      .maps<api::Node>(nodes_near)
      .maps<api::Pod>(node_of_pod);
  // Frequent reports (progress, counts, heartbeats) do not affect other nodes.
  constexpr auto kSame = [](const auto& before, const auto& now) {
    return replication::same_to_others(before, now);
  };
  constexpr auto kSameSpec = [](const auto& before, const auto& now) {
    return replication::same_spec(before.metadata, now.metadata);
  };
  w.maps<api::EdgeNode>(nodes_also, kSame).maps<api::Node>(nodes_labelled, kSame);
  w.maps<api::Model>(nodes_of_copies<api::Group::kEdgeai>, kSameSpec);
  w.maps<api::SednaModel>(nodes_of_copies<api::Group::kSedna>, kSameSpec);
  w.maps<api::Dataset>(node_of_dataset<api::Group::kEdgeai>, kSameSpec);
  w.maps<api::SednaDataset>(node_of_dataset<api::Group::kSedna>, kSameSpec);
  w.maps<api::EdgeNode>([this](const api::EdgeNode& node) { return nodes_that_share_with(node); });
  w.maps<api::Node>([this](const api::Node& node) { return nodes_that_share_with(node); });
  w.maps<api::InferenceModel>(
      [this](const api::InferenceModel& model) { return nodes_that_share(model); });
  for (const hosting::JobWork* job : jobs_) job->watches(w);
}

Keys EdgeNodeReconciler::nodes_that_share(const std::string& name, std::string facts,
                                          Digests digests) const {
  Digests all = digests;
  {
    const MutexLock lock(mutex_);
    const auto known = last_seen_.find(name);
    if (known == last_seen_.end() ? facts.empty() : known->second.facts == facts) return {};
    if (known != last_seen_.end())
      all.insert(known->second.digests.begin(), known->second.digests.end());
    if (facts.empty()) {
      last_seen_.erase(known);
    } else {
      last_seen_[name] = {std::move(facts), std::move(digests)};
    }
  }
  if (all.empty()) return {};
  std::set<std::string> names;
  for (const auto& model : caches_.of<api::InferenceModel>().list()) {
    const bool shares =
        model->spec.on_edge() &&
        std::any_of(model->spec.manifest.begin(), model->spec.manifest.end(),
                    [&](const auto& entry) { return all.contains(entry.sha256sum); });
    if (shares)
      names.insert(model->spec.node_name.empty() ? model->status.node : model->spec.node_name);
  }
  Keys keys;
  for (const std::string& node : names) {
    const auto there = node.empty() ? nullptr : caches_.of<api::EdgeNode>().get({"", node});
    if (there != nullptr && !there->status.usable_peer_url().empty()) keys.push_back({"", node});
  }
  return keys;
}

// Called with old versions too: use the node's current state.
Keys EdgeNodeReconciler::nodes_that_share_with(const api::EdgeNode& node) const {
  const auto now = caches_.of<api::EdgeNode>().get(node.metadata.key());
  Digests digests;
  if (now != nullptr) digests = digests_of(*now);
  return nodes_that_share("node " + node.metadata.name, now == nullptr ? "" : sharing_facts(*now),
                          std::move(digests));
}

Keys EdgeNodeReconciler::nodes_that_share_with(const api::Node& node) const {
  const auto now = caches_.of<api::Node>().get(node.metadata.key());
  const auto label = now == nullptr ? node.metadata.labels.end()
                                    : now->metadata.labels.find(std::string(kZoneLabel));
  const bool there = now != nullptr && label != now->metadata.labels.end();
  Digests digests;
  if (const auto edge_node = caches_.of<api::EdgeNode>().get({"", node.metadata.name}))
    digests = digests_of(*edge_node);
  return nodes_that_share("zone " + node.metadata.name, there ? label->second : "",
                          std::move(digests));
}

Keys EdgeNodeReconciler::nodes_that_share(const api::InferenceModel& model) const {
  const auto now = caches_.of<api::InferenceModel>().get(model.metadata.key());
  const std::string name = "model " + model.metadata.key().str();
  if (now == nullptr || !now->spec.on_edge()) return nodes_that_share(name, "", {});
  Digests digests;
  for (const api::ManifestEntry& entry : now->spec.manifest) digests.insert(entry.sha256sum);
  return nodes_that_share(name,
                          now->metadata.uid + " " + std::to_string(now->metadata.generation) + " " +
                              now->metadata.deletion_timestamp.value_or("") + now->status.node,
                          std::move(digests));
}

Result<runtime::Action> EdgeNodeReconciler::reconcile(const Context& ctx, const api::EdgeNode& node,
                                                      runtime::Writer& writer) {
  if (node.metadata.deleting()) return runtime::Action::await_change();
  const SteadyTime now = clock_.now();
  const auto next_write = next_write_.find(node.metadata.name);
  if (next_write != next_write_.end() && next_write->second > now)
    return runtime::Action::after(next_write->second - now);
  EdgeNodeWorld world;
  world.nodes = caches_.of<api::Node>().list();
  world.models = caches_.of<api::InferenceModel>().list();
  world.pods = caches_.of<api::Pod>().by_index(inferencemodel::kOfModelsOn, node.metadata.name);
  for (auto& dataset : caches_.of<api::Dataset>().list()) {
    if (dataset->spec.node_name == node.metadata.name || dataset->spec.replication)
      world.datasets.push_back(std::move(dataset));
  }
  for (auto& dataset : caches_.of<api::SednaDataset>().list()) {
    if (dataset->spec.node_name == node.metadata.name || dataset->spec.replication)
      world.sedna_datasets.push_back(std::move(dataset));
  }
  add_model_claims<api::Group::kEdgeai>(caches_, world.claims);
  add_model_claims<api::Group::kSedna>(caches_, world.claims);
  const auto copied = [](const auto& dataset) { return dataset->spec.replication.has_value(); };
  if (!world.claims.empty() || std::any_of(world.datasets.begin(), world.datasets.end(), copied) ||
      std::any_of(world.sedna_datasets.begin(), world.sedna_datasets.end(), copied)) {
    for (auto& other : caches_.of<api::EdgeNode>().list())
      world.edge_nodes.emplace(other->metadata.name, other);
    world.edge_nodes.insert_or_assign(node.metadata.name,
                                      std::make_shared<const api::EdgeNode>(node));
  }
  world.servers = &servers_;
  std::vector<std::string> kinds;
  for (const hosting::JobWork* job : jobs_) {
    kinds.push_back(job->kind());
    for (hosting::NodeWork& work : job->work_for(node, caches_))
      world.jobs.push_back(std::move(work));
  }
  std::vector<std::string> left_out;
  api::EdgeNodeSpec wanted = plan_edge_node(node, world, &left_out);
  report_left_out(node, std::move(left_out), writer);
  if (!node.status.usable_peer_url().empty() && !wanted.models.empty()) {
    if (world.edge_nodes.empty())
      for (auto& other : caches_.of<api::EdgeNode>().list())
        world.edge_nodes.emplace(other->metadata.name, other);
    if (peers_.size() > kGroupsMax) peers_.clear();
    share_archives(wanted, node, world, peers_);
  }
  const codec::Json plan = wanted.to_json();
  // Empty lists are written too. An object without lists, as created by an agent, means "no
  // operator has written yet": the agent then keeps its work. Without the write, the agent would
  // continue the work of an object that was deleted meanwhile.
  std::map<std::string, codec::Json> lists;
  std::size_t items = 0;
  for (const char* name : {"models", "datasets", "workers", "shares", "replicas"}) {
    lists[name] = plan[name].is_null() ? codec::Json::array() : plan[name];
    items += lists[name].size();
  }
  std::size_t changed = 0;
  TRY_VOID(
      writer.edit(ctx, runtime::ObjectRef::of(node), runtime::Part::kWhole, [&](codec::Json& live) {
        changed = 0;
        for (const auto& [name, planned] : lists) {
          const codec::Json& there = std::as_const(live)["spec"][name];
          if (name == "workers" && kinds.empty()) continue;
          const codec::Json list =
              name == "workers" ? join_workers(there, planned, kinds) : planned;
          // Few nodes copy files or have workers: an empty list that was absent stays absent.
          if (there == list ||
              (there.is_null() && list.empty() && name != "models" && name != "datasets"))
            continue;
          changed += std::max<std::size_t>(changes(there, list),
                                           1);  // adding an empty list is a change too
          live["spec"].set(name, list);
        }
      }));
  if (changed > 0) {
    const SteadyTime written = clock_.now();
    next_write_[node.metadata.name] = written + pause(items, changed, written - now);
  }
  return runtime::Action::await_change();
}

void EdgeNodeReconciler::report_left_out(const api::EdgeNode& node, std::vector<std::string> now,
                                         runtime::Writer& writer) {
  std::vector<std::string>& before = left_out_[node.metadata.name];
  for (const std::string& item : now) {
    if (std::find(before.begin(), before.end(), item) != before.end()) continue;
    log::warn("invalid item left out of work list", {{"node", node.metadata.name}, {"item", item}});
    writer.event(node, runtime::EventType::kWarning, "ItemLeftOut",
                 "left out of the work list: " + item);
  }
  before = std::move(now);
  if (before.empty()) left_out_.erase(node.metadata.name);
}

Result<runtime::Action> EdgeNodeReconciler::gone(const Context& /*ctx*/, const ObjectKey& key,
                                                 runtime::Writer& /*writer*/) {
  left_out_.erase(key.name);
  next_write_.erase(key.name);
  return runtime::Action::await_change();
}

namespace {

struct EdgeNodes final : hosting::KindControllers {
  EdgeNodes(const runtime::Caches& caches, const hosting::Options& options,
            std::vector<const hosting::JobWork*> jobs)
      : reconciler(caches, hosting::clock_of(options), options.servers, std::move(jobs)) {}

  EdgeNodeReconciler reconciler;
};

}  // namespace

std::unique_ptr<hosting::KindControllers> add(runtime::Manager& manager,
                                              const hosting::Options& options,
                                              std::vector<const hosting::JobWork*> jobs) {
  auto out = std::make_unique<EdgeNodes>(manager.caches(), options, std::move(jobs));
  manager.add<api::EdgeNode>(out->reconciler);
  return out;
}

}  // namespace varda::controllers::edgenode
