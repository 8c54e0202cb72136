#include "controllers/edgenode/reconciler.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "api/edgeai/write_pause.h"
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

// Many changes in one write lengthen the pause before the next one, since more are probably coming.
constexpr auto kPausePerItemAndChange = std::chrono::milliseconds(1);
constexpr auto kPausePerItemMax = std::chrono::milliseconds(10);
// A plan reads all items. So it is made again after this many times its duration at the earliest,
// and hundreds of changes become a few plans. The pause has the same limit as above, because a
// slow API server or a halted process is no reason to keep work from a node.
constexpr int kPauseOfPlans = 4;
// Limit of remembered archive groups; beyond it, all are forgotten and givers are read from work
// lists again.
constexpr std::size_t kGroupsMax = 4096;

Keys keys_of(const std::set<std::string>& names, const runtime::Caches& caches) {
  Keys keys;
  for (const std::string& name : names) {
    if (!name.empty() && caches.of<api::EdgeNode>().get({"", name}) != nullptr)
      keys.push_back({"", name});
  }
  return keys;
}

// Adds the nodes where the model is or may be.
void add_nodes_of(const api::InferenceModel& model, const runtime::Caches& caches,
                  std::set<std::string>& names) {
  names.insert(model.status.node);
  if (!model.spec.on_edge()) return;
  names.insert(model.spec.node_name);
  if (!model.spec.node_name.empty()) return;
  for (const auto& node : hosting::nodes_with(model.spec.node_selector, caches))
    names.insert(node->metadata.name);
}

// Called with the old and new version of a model, so that the former node is requeued too.
Keys nodes_of_model(const api::InferenceModel& model, const runtime::Caches& caches) {
  std::set<std::string> names;
  add_nodes_of(model, caches, names);
  return keys_of(names, caches);
}

// Called with the old and new version of a Model; only its replication affects nodes.
template <api::Group G>
Keys nodes_of_copies(const api::ModelOf<G>& model, const runtime::Caches& caches) {
  Keys keys;
  for (const replication::ReplicationClaim& claim : claims_in(model))
    keys = nodes_of(claim, caches);
  return keys;
}

// Claims for copies with files on the node, or on nodes with these labels.
template <typename T>
void add_claims(const std::string& node, const hosting::Labels& labels,
                const runtime::Caches& caches, std::vector<replication::ReplicationClaim>& claims) {
  for (const auto& object : replication::near_node<T>(node, labels, caches))
    for (replication::ReplicationClaim& claim : claims_in(*object))
      claims.push_back(std::move(claim));
}

// EdgeNodes that share a claim with a node, including that node. `labels` are the node's labels,
// which may be former ones.
Keys nodes_with(const std::string& node, const hosting::Labels& labels,
                const runtime::Caches& caches) {
  std::vector<replication::ReplicationClaim> claims;
  add_claims<api::Dataset>(node, labels, caches, claims);
  add_claims<api::SednaDataset>(node, labels, caches, claims);
  add_claims<api::Model>(node, labels, caches, claims);
  add_claims<api::SednaModel>(node, labels, caches, claims);
  std::set<ObjectKey> keys;
  for (const replication::ReplicationClaim& claim : claims) {
    for (ObjectKey& key : replication::nodes_of(claim, caches)) keys.insert(std::move(key));
  }
  return {keys.begin(), keys.end()};
}

// A node's report about its files affects the other nodes of the same claims.
Keys nodes_also(const api::EdgeNode& node, const runtime::Caches& caches) {
  return nodes_with(node.metadata.name, hosting::labels_of(node.metadata.name, caches), caches);
}

// A node's labels select which nodes share its files.
Keys nodes_labelled(const api::Node& node, const runtime::Caches& caches) {
  return nodes_with(node.metadata.name, node.metadata.labels, caches);
}

// A node's labels can move a model that selects by labels to or from another node.
Keys nodes_near(const api::Node* before, const api::Node* now, const runtime::Caches& caches) {
  const std::string& name = (now != nullptr ? now : before)->metadata.name;
  std::set<std::string> names{name};
  const bool same = before != nullptr && now != nullptr &&
                    before->metadata.uid == now->metadata.uid &&
                    before->metadata.labels == now->metadata.labels;
  for (const api::Node* node : {before, now}) {
    if (node == nullptr || same) continue;
    for (const auto& model : inferencemodel::models_near(name, node->metadata.labels, caches))
      add_nodes_of(*model, caches, names);
  }
  return keys_of(names, caches);
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

template <api::Group G>
Keys nodes_that_read(const api::ModelOf<G>& model, const runtime::Caches& caches) {
  const std::vector<std::string> names =
      model::reading_nodes(hosting::any_model(std::shared_ptr<const api::ModelOf<G>>(
                               std::shared_ptr<const api::ModelOf<G>>(), &model)),
                           caches);
  return keys_of({names.begin(), names.end()}, caches);
}

template <api::Group G>
bool same_file(const api::ModelOf<G>& before, const api::ModelOf<G>& now) {
  return replication::same_spec(before.metadata, now.metadata) &&
         before.status.pinned.has_value() == now.status.pinned.has_value();
}

using Digests = std::set<std::string, std::less<>>;

Digests digests_of(const api::EdgeNode& node) {
  Digests out;
  for (const api::EdgeModel& model : node.spec.models)
    for (const api::EdgeModelVersion& version : model.versions) out.insert(version.sha256);
  return out;
}

// EdgeNodes with a work list about one of the archives, if the nodes can share files.
Keys nodes_that_share(const Digests& digests, const runtime::Caches& caches) {
  std::set<std::string> names;
  for (const std::string& digest : digests) {
    for (const auto& model :
         caches.of<api::InferenceModel>().by_index(inferencemodel::kByDigest, digest))
      names.insert(model->spec.node_name.empty() ? model->status.node : model->spec.node_name);
  }
  Keys keys = keys_of(names, caches);
  std::erase_if(keys, [&](const ObjectKey& key) {
    return archive_peer_url(*caches.of<api::EdgeNode>().get(key)).empty();
  });
  return keys;
}

// The facts of one node about shared archives matter to other nodes. Most reports change none.
Keys nodes_that_share_with(const api::EdgeNode* before, const api::EdgeNode* now,
                           const runtime::Caches& caches) {
  if ((before == nullptr ? "" : sharing_facts(*before)) ==
      (now == nullptr ? "" : sharing_facts(*now)))
    return {};
  Digests digests;
  for (const api::EdgeNode* node : {before, now}) {
    if (node != nullptr) digests.merge(digests_of(*node));
  }
  return nodes_that_share(digests, caches);
}

// Nodes of one zone share archives.
Keys nodes_of_zone_change(const api::Node* before, const api::Node* now,
                          const runtime::Caches& caches) {
  const auto zone = [](const api::Node* node) {
    if (node == nullptr) return std::string();
    const auto label = node->metadata.labels.find(std::string(kZoneLabel));
    return label == node->metadata.labels.end() ? "" : label->second;
  };
  if (zone(before) == zone(now)) return {};
  const auto edge_node =
      caches.of<api::EdgeNode>().get((now != nullptr ? now : before)->metadata.key());
  return edge_node == nullptr ? Keys{} : nodes_that_share(digests_of(*edge_node), caches);
}

Keys nodes_that_share_model(const api::InferenceModel* before, const api::InferenceModel* now,
                            const runtime::Caches& caches) {
  const auto facts = [](const api::InferenceModel* model) {
    if (model == nullptr || !model->spec.on_edge()) return std::string();
    std::string text = model->metadata.uid + " " + std::to_string(model->metadata.generation) +
                       " " + model->metadata.deletion_timestamp.value_or("") + model->status.node;
    if (!model->spec.model_ref) return text;
    for (const std::string& digest : inferencemodel::index_by_digest(*model)) text += " " + digest;
    return text;
  };
  if (facts(before) == facts(now)) return {};
  Digests digests;
  for (const api::InferenceModel* model : {before, now}) {
    if (model == nullptr) continue;
    for (std::string& digest : inferencemodel::index_by_digest(*model))
      digests.insert(std::move(digest));
  }
  return nodes_that_share(digests, caches);
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
  return std::max<Duration>(
      api::write_pause(items, took),
      std::min<Duration>(kPausePerItemAndChange * items * changed, kPausePerItemMax * items));
}

// Adds the models with one of the archives, their nodes, and the nodes of present roles.
void add_sharing_nodes(const api::EdgeNodeSpec& wanted, const api::EdgeNode& node,
                       const runtime::Caches& caches, hosting::NodeSet& nodes,
                       EdgeNodeWorld& world) {
  std::map<ObjectKey, std::shared_ptr<const api::InferenceModel>> models;
  for (const auto& model : world.models) models.emplace(model->metadata.key(), model);
  std::set<std::string> names{node.metadata.name};
  for (const api::EdgeNodeSpec* spec : {&wanted, &node.spec}) {
    for (const api::EdgeModel& item : spec->models) {
      for (const api::EdgeModelVersion& version : item.versions) {
        for (const api::EdgeReplicaSource& peer : version.peers) names.insert(peer.node);
        names.insert(version.share_with.begin(), version.share_with.end());
        for (const auto& model :
             caches.of<api::InferenceModel>().by_index(inferencemodel::kByDigest, version.sha256))
          models.emplace(model->metadata.key(), model);
      }
    }
  }
  world.models.clear();
  for (const auto& [key, model] : models) {
    nodes.add_for(*model);
    world.models.push_back(model);
  }
  world.nodes = nodes.list();
  for (const auto& one : world.nodes) names.insert(one->metadata.name);
  for (const std::string& name : names) {
    if (auto other = caches.of<api::EdgeNode>().get({"", name}))
      world.edge_nodes.emplace(name, std::move(other));
  }
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
  w.indexes<api::Pod>(inferencemodel::kOfModelsOn, inferencemodel::index_model_pods_by_node);
  w.maps<api::InferenceModel>(nodes_of_model)
      .changes<api::Node>(nodes_near)
      .maps<api::Pod>(node_of_pod);
  // Frequent reports (progress, counts, heartbeats) do not affect other nodes.
  constexpr auto kSame = [](const auto& before, const auto& now) {
    return replication::same_for_other_nodes(before, now);
  };
  constexpr auto kSameSpec = [](const auto& before, const auto& now) {
    return replication::same_spec(before.metadata, now.metadata);
  };
  w.maps<api::EdgeNode>(nodes_also, kSame).maps<api::Node>(nodes_labelled, kSame);
  w.maps<api::Model>(nodes_of_copies<api::Group::kEdgeai>, kSameSpec);
  w.maps<api::SednaModel>(nodes_of_copies<api::Group::kSedna>, kSameSpec);
  w.maps<api::Dataset>(node_of_dataset<api::Group::kEdgeai>, kSameSpec);
  w.maps<api::SednaDataset>(node_of_dataset<api::Group::kSedna>, kSameSpec);
  w.changes<api::EdgeNode>(nodes_that_share_with)
      .changes<api::Node>(nodes_of_zone_change)
      .changes<api::InferenceModel>(nodes_that_share_model);
  inferencemodel::add_indexes(w);
  replication::add_indexes<api::Dataset>(w);
  replication::add_indexes<api::SednaDataset>(w);
  replication::add_indexes<api::Model>(w);
  replication::add_indexes<api::SednaModel>(w);
  if (readable_files_ == hosting::ReadableFiles::kDownloads) {
    model::add_file_indexes(w);
    w.maps<api::Model>(nodes_that_read<api::Group::kEdgeai>, same_file<api::Group::kEdgeai>);
    w.maps<api::SednaModel>(nodes_that_read<api::Group::kSedna>, same_file<api::Group::kSedna>);
  }
  for (const hosting::JobWork* job : jobs_) job->watches(w);
}

Result<runtime::Action> EdgeNodeReconciler::reconcile(const Context& ctx, const api::EdgeNode& node,
                                                      runtime::Writer& writer) {
  if (node.metadata.deleting()) return runtime::Action::await_change();
  const SteadyTime now = clock_.now();
  const auto next_plan = next_plan_.find(node.metadata.name);
  if (next_plan != next_plan_.end() && next_plan->second > now)
    return runtime::Action::after(next_plan->second - now);
  EdgeNodeWorld world;
  const std::string& name = node.metadata.name;
  const hosting::Labels labels = hosting::labels_of(name, caches_);
  world.models = inferencemodel::models_near(name, labels, caches_);
  world.pods = caches_.of<api::Pod>().by_index(inferencemodel::kOfModelsOn, name);
  world.datasets = replication::near_node<api::Dataset>(name, labels, caches_);
  world.sedna_datasets = replication::near_node<api::SednaDataset>(name, labels, caches_);
  add_claims<api::Model>(name, labels, caches_, world.claims);
  add_claims<api::SednaModel>(name, labels, caches_, world.claims);
  hosting::NodeSet nodes(caches_);
  nodes.add(name);
  for (const auto& model : world.models) nodes.add_for(*model);
  std::vector<replication::ReplicationClaim> claims = world.claims;
  add_claims<api::Dataset>(name, labels, caches_, claims);
  add_claims<api::SednaDataset>(name, labels, caches_, claims);
  if (!claims.empty()) {
    replication::ReplicationWorld copies = replication::world_of(claims, caches_);
    nodes.add_all(copies.nodes);
    world.edge_nodes = std::move(copies.edge_nodes);
    world.edge_nodes.insert_or_assign(name, std::make_shared<const api::EdgeNode>(node));
  }
  world.nodes = nodes.list();
  world.servers = &servers_;
  if (model_keys_ != nullptr) world.keys = model_keys_->keys();
  std::vector<std::string> kinds;
  for (const hosting::JobWork* job : jobs_) {
    kinds.push_back(job->kind());
    for (hosting::NodeWork& work : job->work_for(node, caches_))
      world.jobs.push_back(std::move(work));
  }
  if (readable_files_ == hosting::ReadableFiles::kDownloads)
    world.files = model::files_to_read(name, caches_);
  std::vector<std::string> left_out;
  api::EdgeNodeSpec wanted = plan_edge_node(node, world, &left_out);
  report_left_out(node, std::move(left_out), writer);
  if (!archive_peer_url(node).empty() && !wanted.models.empty()) {
    add_sharing_nodes(wanted, node, caches_, nodes, world);
    if (peers_.size() > kGroupsMax) peers_.clear();
    share_archives(wanted, node, world, peers_);
  }
  const codec::Json plan = wanted.to_json();
  // Empty lists are written too. An object without lists, as created by an agent, means "no
  // operator has written yet": the agent then keeps its work. Without the write, the agent would
  // continue the work of an object that was deleted meanwhile.
  std::map<std::string, codec::Json> lists;
  std::size_t items = 0;
  for (const char* field : {"models", "datasets", "workers", "shares", "replicas", "files"}) {
    lists[field] = plan[field].is_null() ? codec::Json::array() : plan[field];
    items += lists[field].size();
  }
  std::size_t changed = 0;
  TRY_VOID(
      writer.edit(ctx, runtime::ObjectRef::of(node), runtime::Part::kWhole, [&](codec::Json& live) {
        changed = 0;
        for (const auto& [field, planned] : lists) {
          const codec::Json& current = std::as_const(live)["spec"][field];
          if (field == "workers" && kinds.empty()) continue;
          const codec::Json list =
              field == "workers" ? join_workers(current, planned, kinds) : planned;
          // Few nodes copy files or have workers: an empty list that was absent stays absent.
          if (current == list ||
              (current.is_null() && list.empty() && field != "models" && field != "datasets"))
            continue;
          changed += std::max<std::size_t>(changes(current, list),
                                           1);  // adding an empty list is a change too
          live["spec"].set(field, list);
        }
      }));
  const SteadyTime done = clock_.now();
  Duration wait = std::min<Duration>((done - now) * kPauseOfPlans, kPausePerItemMax * items);
  if (changed > 0) wait = std::max(wait, pause(items, changed, done - now));
  next_plan_[node.metadata.name] = done + wait;
  return world.keys != nullptr ? runtime::Action::after(hosting::kKeysAgain)
                               : runtime::Action::await_change();
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

Result<runtime::Action> EdgeNodeReconciler::on_deleted(const Context& /*ctx*/, const ObjectKey& key,
                                                       runtime::Writer& /*writer*/) {
  left_out_.erase(key.name);
  next_plan_.erase(key.name);
  return runtime::Action::await_change();
}

namespace {

struct EdgeNodes final : hosting::KindControllers {
  EdgeNodes(const runtime::Caches& caches, const hosting::Options& options,
            std::vector<const hosting::JobWork*> jobs)
      : reconciler(caches, hosting::clock_of(options), options.servers, std::move(jobs),
                   options.model_keys, options.readable_files) {}

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
