// ReplicaSets: as many pods of one template as asked for.
#pragma once

#include <optional>
#include <string>

#include "api/core/replica_set.h"
#include "controllers/builtin/builtin.h"
#include "controllers/builtin/workload.h"
#include "runtime/controller.h"

namespace varda::controllers {

struct ReplicaSetPlan {
  struct Adoption {
    PodPtr pod;
    std::string from;  // the uid of the controller it has; "" none
  };
  std::vector<Adoption> adopt;
  PodList release;     // ours, but the selector does not match them any more
  PodChanges changes;  // with generateName
  Json status;         // without the condition ReplicaFailure
  std::string problem;
  std::optional<Duration> again;  // something depends on time alone: availability, a failed pod's age
};

/// Pure. `pods`: all of the namespace that could concern it; it sorts out its own. It takes those nobody controls, and those that
/// its own Deployment controls directly, as Deployments did before they had ReplicaSets.
ReplicaSetPlan plan_replica_set(const api::ReplicaSet& set, const PodList& pods, WallTime now,
                                std::chrono::seconds failed_pod_delay);

class ReplicaSetReconciler {
 public:
  ReplicaSetReconciler(const runtime::Caches& caches, const BuiltinOptions& options);
  void watches(runtime::Watches<api::ReplicaSet>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const api::ReplicaSet& set, runtime::Writer& writer) const;

 private:
  const runtime::Caches& caches_;
  const BuiltinOptions options_;
  const Clock& clock_;
};

}  // namespace varda::controllers
