// DaemonSets: one pod on every eligible node, replaced node by node.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/core/daemon_set.h"
#include "api/core/node.h"
#include "cluster/controllers.h"
#include "cluster/internal/daemon_set_history.h"
#include "cluster/internal/workload.h"
#include "runtime/controller.h"

namespace varda::cluster {

struct DaemonSetPlan {
  PodChanges changes;
  Json status;
  std::string problem;
  std::optional<Duration> again;
};

/// Pure. `pods`: those that the DaemonSet controls.
DaemonSetPlan plan_daemon_set(const api::DaemonSet& set,
                              const std::vector<std::shared_ptr<const api::Node>>& nodes,
                              const PodList& pods, WallTime now,
                              std::chrono::seconds failed_pod_delay);

class DaemonSetReconciler {
 public:
  DaemonSetReconciler(const runtime::Caches& caches, const Options& options);
  void watches(runtime::Watches<api::DaemonSet>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const api::DaemonSet& set,
                                    runtime::Writer& writer) const;

 private:
  const runtime::Caches& caches_;
  const Options options_;
  const Clock& clock_;
};

}  // namespace varda::cluster
