#include "controllers/controllers.h"

#include "controllers/dataset/reconciler.h"
#include "controllers/edgenode/reconciler.h"
#include "controllers/inferencemodel/reconciler.h"
#include "controllers/joint/metrics.h"
#include "controllers/joint/reconciler.h"
#include "controllers/model/reconciler.h"

namespace varda::controllers {

namespace {

struct ControllersImpl final : Controllers {
  ControllersImpl(const runtime::Manager& manager, const runtime::Caches& caches,
                  const Clock& clock, Options options)
      : joint_work(joint_index, options.inference_models),
        edge_nodes(caches, clock, options.inference_models.servers, {&joint_work}),
        joint_inference(caches, joint_index, options.inference_models),
        inference_models(
            caches, std::move(options.inference_models),
            [this](const std::string& node) { return joint_index.claims_on({node}, ""); }),
        datasets(caches, clock),
        sedna_datasets(caches, clock),
        models(caches, clock),
        sedna_models(caches, clock),
        joint_metrics(caches, [&manager] { return manager.leading(); }) {}
  std::vector<const metrics::Collector*> metrics() const override { return {&joint_metrics}; }

  JointIndex joint_index;
  JointWork joint_work;
  EdgeNodeReconciler edge_nodes;
  JointInferenceReconciler joint_inference;
  InferenceModelReconciler inference_models;
  DatasetReconciler<api::Group::kEdgeai> datasets;
  DatasetReconciler<api::Group::kSedna> sedna_datasets;
  ModelReconciler<api::Group::kEdgeai> models;
  ModelReconciler<api::Group::kSedna> sedna_models;
  JointMetrics joint_metrics;
};

}  // namespace

std::unique_ptr<Controllers> add_all(runtime::Manager& manager, Options options) {
  const Clock& clock =
      options.inference_models.clock != nullptr ? *options.inference_models.clock : system_clock();
  auto impl =
      std::make_unique<ControllersImpl>(manager, manager.caches(), clock, std::move(options));
  manager.add<api::InferenceModel>(impl->inference_models);
  manager.add<api::JointInferenceService>(impl->joint_inference);
  manager.add<api::EdgeNode>(impl->edge_nodes);
  manager.add<api::Dataset>(impl->datasets);
  manager.add<api::SednaDataset>(impl->sedna_datasets);
  manager.add<api::Model>(impl->models);
  manager.add<api::SednaModel>(impl->sedna_models);
  return impl;
}

}  // namespace varda::controllers
