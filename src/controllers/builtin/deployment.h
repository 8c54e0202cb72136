// Deployments: one ReplicaSet for each template they had, scaled against each other so that a roll-out stays within its bounds.
//
// The rules are those of Kubernetes (kubernetes.io/docs/concepts/workloads/controllers/deployment), its annotations and reasons
// included: kubectl's rollout, scale and describe read them. docs/design/009-workloads.md tells where they come from.
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
#include "controllers/builtin/builtin.h"
#include "controllers/builtin/workload.h"
#include "runtime/controller.h"

namespace varda::controllers {

inline constexpr std::string_view kRevision = "deployment.kubernetes.io/revision";

using ReplicaSetPtr = std::shared_ptr<const api::ReplicaSet>;

struct DeploymentWorld {
  std::vector<ReplicaSetPtr> sets;  // that the Deployment controls
  PodList own;                      // that it controls directly, as it did before there were ReplicaSets
  PodList of_sets;                  // that `sets` control, also those on their way out
};

struct DeploymentPlan {
  std::optional<Json> create;  // the ReplicaSet of the present template
  struct Change {
    ReplicaSetPtr set;
    std::int64_t replicas = 0;
    std::int64_t min_ready_seconds = 0;
    std::map<std::string, std::string> annotations;  // to be set
  };
  std::vector<Change> change;
  std::vector<ReplicaSetPtr> drop;  // beyond revisionHistoryLimit
  PodList remove;                   // of `own`
  std::vector<std::string> told;    // Events: ScalingReplicaSet
  std::string revision;             // for the annotation of the Deployment; "" as it is
  Json status;
  std::string problem;            // the spec cannot be followed: nothing is created or removed
  std::optional<Duration> again;  // the progress deadline
};

/// Pure.
DeploymentPlan plan_deployment(const api::Deployment& deployment, const DeploymentWorld& world, WallTime now);

class DeploymentReconciler {
 public:
  DeploymentReconciler(const runtime::Caches& caches, const BuiltinOptions& options);
  void watches(runtime::Watches<api::Deployment>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const api::Deployment& deployment, runtime::Writer& writer) const;

 private:
  DeploymentWorld look(const api::Deployment& deployment) const;

  const runtime::Caches& caches_;
  const Clock& clock_;
};

}  // namespace varda::controllers
