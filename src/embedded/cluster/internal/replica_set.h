// ReplicaSets: a number of pods from one template.
#pragma once

#include <optional>
#include <string>

#include "api/core/replica_set.h"
#include "cluster/controllers.h"
#include "cluster/internal/workload.h"
#include "runtime/controller.h"

namespace varda::cluster {

struct ReplicaSetPlan {
  struct Adoption {
    PodPtr pod;
    std::string from;  // uid of the current controller; "" if none
  };
  std::vector<Adoption> adopt;
  PodList release;     // controlled by the set, but no longer matching the selector
  PodChanges changes;  // created with generateName
  Json status;         // without the condition ReplicaFailure
  std::string problem;
  std::optional<Duration> again;  // until a timed change: availability, or a failed pod's age
};

/// Pure. `pods`: all candidates of the namespace; the function selects the set's own. It adopts
/// pods without a controller, and pods that its Deployment controls directly, from before
/// ReplicaSets existed.
ReplicaSetPlan plan_replica_set(const api::ReplicaSet& set, const PodList& pods, WallTime now,
                                std::chrono::seconds failed_pod_delay);

class ReplicaSetReconciler {
 public:
  ReplicaSetReconciler(const runtime::Caches& caches, const Options& options);
  void watches(runtime::Watches<api::ReplicaSet>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const api::ReplicaSet& set,
                                    runtime::Writer& writer) const;

 private:
  const runtime::Caches& caches_;
  const Options options_;
  const Clock& clock_;
};

}  // namespace varda::cluster
