#include "controllers/model/reconciler.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace varda::controllers::model {

template <api::Group G>
void ModelReconciler<G>::watches(runtime::Watches<Model>& w) const {
  if constexpr (G == api::Group::kSedna) w.name("sedna-models");
  const auto copied = [](std::string_view node, const std::map<std::string, std::string>& labels,
                         const runtime::Caches& caches) {
    std::vector<meta::ObjectKey> keys;
    for (const auto& model : caches.of<Model>().list()) {
      const auto& replication = model->spec.replication;
      if (replication &&
          (model->spec.node_name == node || replication::selects(*replication, labels)))
        keys.push_back(model->metadata.key());
    }
    return keys;
  };
  w.template maps<api::EdgeNode>(
      [copied](const api::EdgeNode& node, const runtime::Caches& caches) {
        std::vector<meta::ObjectKey> keys = reported_models(node, Model::resource());
        for (meta::ObjectKey& key :
             copied(node.metadata.name, replication::labels_of(node.metadata.name, caches), caches))
          keys.push_back(std::move(key));
        return keys;
      });
  w.template maps<api::Node>(
      [copied](const api::Node& node, const runtime::Caches& caches) {
        return copied(node.metadata.name, node.metadata.labels, caches);
      },
      [](const api::Node& before, const api::Node& now) {
        return replication::same_to_others(before, now);
      });
}

template <api::Group G>
Result<runtime::Action> ModelReconciler<G>::reconcile(const Context& ctx, const Model& model,
                                                      runtime::Writer& writer) const {
  if (model.metadata.deleting()) return runtime::Action::await_change();
  auto nodes = caches_.of<api::EdgeNode>().list();
  replication::ReplicationWorld world;
  if (model.spec.replication) {
    world.nodes = caches_.of<api::Node>().list();
    for (const auto& node : nodes) world.edge_nodes.emplace(node->metadata.name, node);
  }
  std::erase_if(nodes, [](const auto& node) {
    return node->status.workers.empty() && node->spec.workers.empty();
  });
  const std::string now = meta::format_time(clock_.wall());
  Status unreadable;
  TRY_VOID(writer.edit(
      ctx, runtime::ObjectRef::of(model), runtime::Part::kStatus, [&](codec::Json& live) {
        const auto before = api::ModelMetricsStatus::from_json(std::as_const(live)["status"]);
        if (!before.ok()) {
          unreadable = before.error();
          return;
        }
        const ModelView which{Model::resource(), model.metadata};
        api::ModelMetricsStatus status = observe(which, *before, nodes, now);
        status.replication = observe_copies(which, model.spec, world, *before, now);
        live.set("status", status.to_json());
      }));
  TRY_VOID(std::move(unreadable));
  return runtime::Action::await_change();
}

template class ModelReconciler<api::Group::kEdgeai>;
template class ModelReconciler<api::Group::kSedna>;

namespace {

struct Models final : hosting::KindControllers {
  Models(const runtime::Caches& caches, const Clock& clock)
      : edgeai(caches, clock), sedna(caches, clock) {}

  ModelReconciler<api::Group::kEdgeai> edgeai;
  ModelReconciler<api::Group::kSedna> sedna;
};

}  // namespace

std::unique_ptr<hosting::KindControllers> add(runtime::Manager& manager,
                                              const hosting::Options& options) {
  auto out = std::make_unique<Models>(manager.caches(), hosting::clock_of(options));
  manager.add<api::Model>(out->edgeai);
  manager.add<api::SednaModel>(out->sedna);
  return out;
}

}  // namespace varda::controllers::model
