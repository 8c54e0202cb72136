#include "controllers/controllers.h"

#include "controllers/edgenode/reconciler.h"
#include "controllers/inferencemodel/reconciler.h"

namespace varda::controllers {

namespace {

struct All final : Controllers {
  All(const runtime::Caches& caches, Options options)
      : edge_nodes(caches, options.inference_models.clock ? *options.inference_models.clock : system_clock()),
        models(caches, std::move(options.inference_models)) {}
  EdgeNodeReconciler edge_nodes;
  InferenceModelReconciler models;
};

}  // namespace

std::unique_ptr<Controllers> add_all(runtime::Manager& manager, Options options) {
  auto all = std::make_unique<All>(manager.caches(), std::move(options));
  manager.add<api::InferenceModel>(all->models);
  manager.add<api::EdgeNode>(all->edge_nodes);
  return all;
}

}  // namespace varda::controllers
