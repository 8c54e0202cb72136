// Controller of InferenceModels: caches in, plan() and observe(), writes out.
#pragma once

#include <string>
#include <vector>

#include "base/mutex.h"
#include "controllers/inferencemodel/plan.h"
#include "hosting/node_work.h"
#include "hosting/passing_problems.h"
#include "hosting/port_claims.h"
#include "hosting/replacement_pauses.h"
#include "hosting/servers.h"
#include "runtime/controller.h"

namespace varda::controllers::inferencemodel {

/// Keeps every InferenceModel served: Deployment and Service in the cloud layer, one Pod at the
/// edge.
class InferenceModelReconciler {
 public:
  /// `caches` and `jobs`, the kinds with workers, outlive it.
  InferenceModelReconciler(const runtime::Caches& caches, hosting::Options options,
                           std::vector<const hosting::JobWork*> jobs = {});

  void watches(runtime::Watches<api::InferenceModel>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const api::InferenceModel& model,
                                    runtime::Writer& writer);
  Result<runtime::Action> on_deleted(const Context& ctx, const meta::ObjectKey& key,
                                     runtime::Writer& writer);

 private:
  World look(const api::InferenceModel& model) const;
  /// Removes an ended pod after its pause; until then requeues the model.
  Result<runtime::Action> replace_ended_pod(const Context& ctx, const api::InferenceModel& model,
                                            const World& world, runtime::Writer& writer);

  const runtime::Caches& caches_;
  const hosting::Options options_;
  const Clock& clock_;
  const std::vector<const hosting::JobWork*> jobs_;
  Mutex mutex_;
  hosting::ReplacementPauses pauses_ GUARDED_BY(mutex_);
  hosting::PassingProblems passing_ GUARDED_BY(mutex_);
};

}  // namespace varda::controllers::inferencemodel
