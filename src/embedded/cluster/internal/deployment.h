// Deployments: one ReplicaSet per template, scaled against each other within the limits of the
// roll-out.
//
// The rules are those of Kubernetes (kubernetes.io/docs/concepts/workloads/controllers/deployment).
// Annotations and reasons are the same too, because kubectl's rollout, scale and describe read
// them. docs/design/009-workloads.md lists the sources.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/core/deployment.h"
#include "api/core/replica_set.h"
#include "cluster/controllers.h"
#include "cluster/internal/workload.h"
#include "runtime/controller.h"

namespace varda::cluster {

inline constexpr std::string_view kRevision = "deployment.kubernetes.io/revision";

using ReplicaSetPtr = std::shared_ptr<const api::ReplicaSet>;

struct DeploymentWorld {
  std::vector<ReplicaSetPtr> sets;  // controlled by the Deployment
  PodList own;                      // controlled directly, from before ReplicaSets existed
  PodList of_sets;                  // controlled by `sets`, including terminating ones
};

struct DeploymentPlan {
  std::optional<Json> create;  // the ReplicaSet of a new template
  struct Change {
    ReplicaSetPtr set;
    std::int64_t replicas = 0;
    std::int64_t min_ready_seconds = 0;
    std::map<std::string, std::string> annotations;  // to set
  };
  std::vector<Change> change;
  std::vector<ReplicaSetPtr> drop;  // beyond revisionHistoryLimit
  PodList remove;                   // from `own`
  std::vector<std::string> events;  // Events: ScalingReplicaSet
  std::string revision;             // for the annotation of the Deployment; "": unchanged
  Json status;
  std::string problem;            // the spec is invalid: nothing is created or removed
  std::optional<Duration> again;  // until the progress deadline
};

/// Pure.
DeploymentPlan plan_deployment(const api::Deployment& deployment, const DeploymentWorld& world,
                               WallTime now);

class DeploymentReconciler {
 public:
  DeploymentReconciler(const runtime::Caches& caches, const Options& options);
  void watches(runtime::Watches<api::Deployment>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const api::Deployment& deployment,
                                    runtime::Writer& writer) const;

 private:
  DeploymentWorld look(const api::Deployment& deployment) const;

  const runtime::Caches& caches_;
  const Clock& clock_;
};

}  // namespace varda::cluster
