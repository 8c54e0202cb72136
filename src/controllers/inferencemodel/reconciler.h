// The controller of InferenceModels: caches in, plan() and observe(), writes out.
#pragma once

#include "controllers/inferencemodel/plan.h"
#include "runtime/controller.h"

namespace varda::controllers {

/// Keeps every InferenceModel served: Deployment and Service in the cloud layer, one Pod at the edge.
class InferenceModelReconciler {
 public:
  /// `caches` outlive it.
  InferenceModelReconciler(const runtime::Caches& caches, InferenceModelOptions options);

  void watches(runtime::Watches<api::InferenceModel>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const api::InferenceModel& model, runtime::Writer& writer) const;

 private:
  World look(const api::InferenceModel& model) const;

  const runtime::Caches& caches_;
  const InferenceModelOptions options_;
};

}  // namespace varda::controllers
