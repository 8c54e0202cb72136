#include "controllers/model/reconciler.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "controllers/inferencemodel/inferencemodel.h"
#include "controllers/joint/joint.h"

namespace varda::controllers::model {

namespace {

// EdgeNodes by the work keys of the Models that reports of workers name.
constexpr const char* kByReportedModel = "reported model";
std::vector<std::string> index_by_reported_model(const api::EdgeNode& node) {
  std::vector<std::string> values;
  for (const meta::Resource& resource : {api::Model::resource(), api::SednaModel::resource()}) {
    for (const meta::ObjectKey& key : reported_models(node, resource))
      values.push_back(hosting::work_key(resource, key));
  }
  return values;
}

// Time to the next look at a file that is being read, or that could not be read.
constexpr std::chrono::seconds kReadingPeriod{1}, kFailedPeriod{30};

bool is_served(const hosting::AnyModel& model, const runtime::Caches& caches) {
  const meta::ObjectKey key = model.metadata->key();
  const auto services =
      caches.of<api::JointInferenceService>().by_index(joint::kByModel, key.str());
  for (const auto& service : services) {
    const auto references = joint::served_models(*service);
    if (std::any_of(references.begin(), references.end(), [&](const api::ModelReference& one) {
          return one.name == key.name && (one.group.empty() || one.group == model.group);
        }))
      return true;
  }
  const auto referring = inferencemodel::models_referring_to(key, caches);
  return std::any_of(referring.begin(), referring.end(), [&](const meta::ObjectKey& one) {
    const auto server = caches.of<api::InferenceModel>().get(one);
    return server != nullptr && server->spec.model_ref &&
           inferencemodel::may_choose(*server->spec.model_ref, model);
  });
}

/// The Models without a digest that an InferenceModel may serve. reconcile() decides which files
/// the operator can read.
template <api::Group G>
std::vector<meta::ObjectKey> unpinned_of(const api::InferenceModel& server,
                                         const runtime::Caches& caches) {
  std::vector<meta::ObjectKey> keys;
  if (!server.spec.model_ref) return keys;
  for (const auto& model : caches.of<api::ModelOf<G>>().list(server.metadata.ns)) {
    if (needs_pin(*model, hosting::ReadableFiles::kDownloadsAndPaths) &&
        inferencemodel::may_choose(*server.spec.model_ref, hosting::any_model(model)))
      keys.push_back(model->metadata.key());
  }
  return keys;
}

// Nodes with reports about the model, and those of earlier reporters. By name.
std::vector<std::shared_ptr<const api::EdgeNode>> nodes_of(const ModelView& model,
                                                           const api::ModelMetricsStatus& before,
                                                           const runtime::Caches& caches) {
  const auto all = caches.of<api::EdgeNode>();
  std::map<std::string, std::shared_ptr<const api::EdgeNode>> found;
  for (auto& node :
       all.by_index(kByReportedModel, hosting::work_key(model.resource, model.metadata.key())))
    found.emplace(node->metadata.name, node);
  for (const api::ModelReporter& reporter : before.reporters) {
    if (auto node = all.get({"", reporter.node})) found.emplace(reporter.node, std::move(node));
  }
  std::vector<std::shared_ptr<const api::EdgeNode>> out;
  for (auto& [name, node] : found) out.push_back(std::move(node));
  return out;
}

// Models that a node must read, by spec.nodeName, or under kAnyNode.
constexpr const char* kUnreadFiles = "unread file";
constexpr const char* kAnyNode = "*";
template <api::Group G>
std::vector<std::string> index_unread_files(const api::ModelOf<G>& model) {
  if (!needs_node(hosting::any_model(std::shared_ptr<const api::ModelOf<G>>(
          std::shared_ptr<const api::ModelOf<G>>(), &model))))
    return {};
  return {model.spec.node_name.empty() ? kAnyNode : model.spec.node_name};
}

template <api::Group G>
void add_files(const std::string& node, const runtime::Caches& caches,
               std::vector<api::EdgeFile>& files) {
  for (const std::string& value : {node, std::string(kAnyNode)}) {
    for (const auto& found : caches.of<api::ModelOf<G>>().by_index(kUnreadFiles, value)) {
      const hosting::AnyModel model = hosting::any_model(found);
      const std::vector<std::string> nodes = reading_nodes(model, caches);
      if (found->metadata.deleting() ||
          std::find(nodes.begin(), nodes.end(), node) == nodes.end() || !is_served(model, caches))
        continue;
      files.push_back(file_of(model));
    }
  }
}

/// The first useful answer of a node: a digest, else a failure, else that the node reads.
struct NodeAnswer {
  std::optional<hosting::FileDigest> digest;
  std::string reader;
};
NodeAnswer node_answer(const hosting::AnyModel& model, const runtime::Caches& caches) {
  using State = hosting::FileDigest::State;
  const auto rank = [](const std::optional<hosting::FileDigest>& one) {
    if (!one) return 0;
    return one->state == State::kRead ? 3 : one->state == State::kFailed ? 2 : 1;
  };
  NodeAnswer out;
  for (const std::string& name : reading_nodes(model, caches)) {
    const auto node = caches.of<api::EdgeNode>().get({"", name});
    if (node == nullptr) continue;
    auto answer = answer_of(*node, model);
    if (rank(answer) <= rank(out.digest)) continue;
    out.digest = std::move(answer);
    out.reader = "node " + name;
  }
  return out;
}

}  // namespace

void add_file_indexes(runtime::Watches<api::EdgeNode>& w) {
  w.indexes<api::Model>(kUnreadFiles, index_unread_files<api::Group::kEdgeai>);
  w.indexes<api::SednaModel>(kUnreadFiles, index_unread_files<api::Group::kSedna>);
  w.indexes<api::JointInferenceService>(joint::kByModel, joint::index_by_model);
  w.indexes<api::InferenceModel>(inferencemodel::kByModelRef, inferencemodel::index_by_model_ref);
}

std::vector<std::string> reading_nodes(const hosting::AnyModel& model,
                                       const runtime::Caches& caches) {
  if (!replication::local_path(model.spec->url)) return {};
  if (!model.spec->node_name.empty()) return {model.spec->node_name};
  std::vector<std::string> out;
  for (const meta::ObjectKey& key :
       inferencemodel::models_referring_to(model.metadata->key(), caches)) {
    const auto server = caches.of<api::InferenceModel>().get(key);
    if (server == nullptr || !server->spec.on_edge() || !server->spec.model_ref ||
        !inferencemodel::may_choose(*server->spec.model_ref, model))
      continue;
    const std::string& node =
        server->spec.node_name.empty() ? server->status.node : server->spec.node_name;
    if (!node.empty() && std::find(out.begin(), out.end(), node) == out.end()) out.push_back(node);
  }
  return out;
}

std::vector<api::EdgeFile> files_to_read(const std::string& node, const runtime::Caches& caches) {
  std::vector<api::EdgeFile> files;
  add_files<api::Group::kEdgeai>(node, caches, files);
  add_files<api::Group::kSedna>(node, caches, files);
  std::sort(files.begin(), files.end(),
            [](const api::EdgeFile& a, const api::EdgeFile& b) { return a.key < b.key; });
  return files;
}

template <api::Group G>
void ModelReconciler<G>::watches(runtime::Watches<Model>& w) const {
  if constexpr (G == api::Group::kSedna) w.name("sedna-models");
  replication::add_indexes<Model>(w);
  w.template indexes<api::JointInferenceService>(joint::kByModel, joint::index_by_model);
  w.template maps<api::JointInferenceService>(
      [](const api::JointInferenceService& service, const runtime::Caches&) {
        std::vector<meta::ObjectKey> keys;
        for (const api::ModelReference& one : joint::served_models(service))
          keys.push_back({service.metadata.ns, one.name});
        return keys;
      });
  w.template indexes<api::InferenceModel>(inferencemodel::kByModelRef,
                                          inferencemodel::index_by_model_ref);
  w.template maps<api::InferenceModel>(
      unpinned_of<G>, [](const api::InferenceModel& before, const api::InferenceModel& now) {
        return before.metadata.generation == now.metadata.generation;
      });
  w.template indexes<api::EdgeNode>(kByReportedModel, index_by_reported_model);
  w.template maps<api::EdgeNode>(
      [](const api::EdgeNode& node, const runtime::Caches&) {
        std::vector<meta::ObjectKey> keys;
        const std::string prefix = Model::resource().group_resource() + "/";
        for (const api::EdgeFileReport& report : node.status.files) {
          const std::size_t slash = report.key.find('/', prefix.size());
          if (!report.key.starts_with(prefix) || slash == std::string::npos) continue;
          keys.push_back({report.key.substr(prefix.size(), slash - prefix.size()),
                          report.key.substr(slash + 1)});
        }
        return keys;
      },
      [](const api::EdgeNode& before, const api::EdgeNode& now) {
        return before.status.files == now.status.files && before.spec.files == now.spec.files;
      });
  const auto copied = [](const std::string& node, const hosting::Labels& labels,
                         const runtime::Caches& caches) {
    std::vector<meta::ObjectKey> keys;
    for (const auto& model : replication::near_node<Model>(node, labels, caches)) {
      if (model->spec.replication) keys.push_back(model->metadata.key());
    }
    return keys;
  };
  w.template maps<api::EdgeNode>(
      [copied](const api::EdgeNode& node, const runtime::Caches& caches) {
        std::vector<meta::ObjectKey> keys = reported_models(node, Model::resource());
        for (meta::ObjectKey& key :
             copied(node.metadata.name, hosting::labels_of(node.metadata.name, caches), caches))
          keys.push_back(std::move(key));
        return keys;
      });
  w.template maps<api::Node>(
      [copied](const api::Node& node, const runtime::Caches& caches) {
        return copied(node.metadata.name, node.metadata.labels, caches);
      },
      [](const api::Node& before, const api::Node& now) {
        return replication::same_for_other_nodes(before, now);
      });
}

template <api::Group G>
Result<runtime::Action> ModelReconciler<G>::reconcile(const Context& ctx, const Model& model,
                                                      runtime::Writer& writer) const {
  if (model.metadata.deleting()) return runtime::Action::await_change();
  const ModelView which{Model::resource(), model.metadata};
  replication::ReplicationWorld world;
  if (const auto claim = claim_of(which, model.spec))
    world = replication::world_of({*claim}, caches_);
  // Shares no ownership: the argument outlives this call.
  const hosting::AnyModel viewed =
      hosting::any_model(std::shared_ptr<const Model>(std::shared_ptr<const Model>(), &model));
  std::optional<hosting::FileDigest> digest;
  if (file_digests_ && needs_pin(model, readable_files_) && is_served(viewed, caches_))
    digest = file_digests_(hosting::fetched_url(model.spec.url));
  std::string reader = "the operator";
  if (readable_files_ == hosting::ReadableFiles::kDownloads && needs_node(viewed) &&
      is_served(viewed, caches_)) {
    NodeAnswer answer = node_answer(viewed, caches_);
    digest = std::move(answer.digest);
    reader = std::move(answer.reader);
  }
  const std::string now = meta::format_time(clock_.wall());
  Status unreadable;
  TRY_VOID(writer.edit(
      ctx, runtime::ObjectRef::of(model), runtime::Part::kStatus, [&](codec::Json& live) {
        const auto before = api::ModelMetricsStatus::from_json(std::as_const(live)["status"]);
        if (!before.ok()) {
          unreadable = before.error();
          return;
        }
        api::ModelMetricsStatus status =
            observe(which, *before, nodes_of(which, *before, caches_), now);
        status.replication = observe_copies(which, model.spec, world, *before, now);
        observe_pin(model.spec, digest, now, status, reader);
        live.set("status", status.to_json());
      }));
  TRY_VOID(std::move(unreadable));
  if (digest && reader.starts_with("node ")) return runtime::Action::await_change();
  if (digest && digest->state == hosting::FileDigest::State::kReading)
    return runtime::Action::after(kReadingPeriod);
  if (digest && digest->state == hosting::FileDigest::State::kFailed)
    return runtime::Action::after(kFailedPeriod);
  return runtime::Action::await_change();
}

template class ModelReconciler<api::Group::kEdgeai>;
template class ModelReconciler<api::Group::kSedna>;

namespace {

struct Models final : hosting::KindControllers {
  Models(const runtime::Caches& caches, const hosting::Options& options)
      : edgeai(caches, options), sedna(caches, options) {}

  ModelReconciler<api::Group::kEdgeai> edgeai;
  ModelReconciler<api::Group::kSedna> sedna;
};

}  // namespace

std::unique_ptr<hosting::KindControllers> add(runtime::Manager& manager,
                                              const hosting::Options& options) {
  auto out = std::make_unique<Models>(manager.caches(), options);
  manager.add<api::Model>(out->edgeai);
  manager.add<api::SednaModel>(out->sedna);
  return out;
}

}  // namespace varda::controllers::model
