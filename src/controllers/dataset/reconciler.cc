#include "controllers/dataset/reconciler.h"

#include <map>
#include <string>
#include <vector>

namespace varda::controllers::dataset {

namespace {

using Keys = std::vector<meta::ObjectKey>;

/// Datasets on the node, and those with a copy due on a node with these labels.
template <api::Group G>
Keys datasets_near(const std::string& node, const hosting::Labels& labels,
                   const runtime::Caches& caches) {
  Keys keys;
  for (const auto& dataset : replication::near_node<api::DatasetOf<G>>(node, labels, caches))
    keys.push_back(dataset->metadata.key());
  return keys;
}

// Emits Events for transitions that people care about.
void record_events(const runtime::ObjectRef& ref, const api::DatasetStatus& before,
                   const api::DatasetStatus& now, runtime::Writer& writer) {
  const meta::Condition* was = meta::find_condition(before.conditions, "Ready");
  const meta::Condition* is = meta::find_condition(now.conditions, "Ready");
  if (is == nullptr || (was != nullptr && was->status == is->status && was->reason == is->reason))
    return;
  if (is->status == "True") {
    writer.event(ref, runtime::EventType::kNormal, is->reason, is->message);
  } else if (!is_dataset_progress(is->reason)) {
    writer.event(ref, runtime::EventType::kWarning, is->reason, is->message);
  }
}

}  // namespace

template <api::Group G>
void DatasetReconciler<G>::watches(runtime::Watches<Dataset>& w) const {
  if constexpr (G == api::Group::kSedna) w.name("sedna-datasets");
  replication::add_indexes<Dataset>(w);
  w.template maps<api::Node>([](const api::Node& node, const runtime::Caches& caches) {
    return datasets_near<G>(node.metadata.name, node.metadata.labels, caches);
  });
  w.template maps<api::EdgeNode>([](const api::EdgeNode& node, const runtime::Caches& caches) {
    return datasets_near<G>(node.metadata.name, hosting::labels_of(node.metadata.name, caches),
                            caches);
  });
}

template <api::Group G>
Result<runtime::Action> DatasetReconciler<G>::reconcile(const Context& ctx, const Dataset& dataset,
                                                        runtime::Writer& writer) const {
  if (dataset.metadata.deleting()) return runtime::Action::await_change();
  DatasetWorld world;
  if (const std::string& node = dataset.spec.node_name; !node.empty()) {
    world.node = caches_.of<api::Node>().get({"", node});
    world.edge_node = caches_.of<api::EdgeNode>().get({"", node});
  }
  const std::string now = meta::format_time(clock_.wall());
  api::DatasetStatus status = observe(view(dataset), world, now);
  replication::ReplicationWorld copies;
  if (const auto claim = claim_of(view(dataset))) copies = replication::world_of({*claim}, caches_);
  status.replication = observe_copies(view(dataset), copies, now);
  record_events(runtime::ObjectRef::of(dataset), dataset.status, status, writer);
  TRY_VOID(writer.status(ctx, dataset, status.to_json()));
  return runtime::Action::await_change();
}

template class DatasetReconciler<api::Group::kEdgeai>;
template class DatasetReconciler<api::Group::kSedna>;

namespace {

struct Datasets final : hosting::KindControllers {
  Datasets(const runtime::Caches& caches, const Clock& clock)
      : edgeai(caches, clock), sedna(caches, clock) {}

  DatasetReconciler<api::Group::kEdgeai> edgeai;
  DatasetReconciler<api::Group::kSedna> sedna;
};

}  // namespace

std::unique_ptr<hosting::KindControllers> add(runtime::Manager& manager,
                                              const hosting::Options& options) {
  auto out = std::make_unique<Datasets>(manager.caches(), hosting::clock_of(options));
  manager.add<api::Dataset>(out->edgeai);
  manager.add<api::SednaDataset>(out->sedna);
  return out;
}

}  // namespace varda::controllers::dataset
