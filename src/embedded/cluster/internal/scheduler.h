// Binds pods to nodes by node selector, required node affinity and taints; among the eligible
// nodes, the one with the fewest pods wins.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/core/node.h"
#include "api/core/pod.h"
#include "cluster/controllers.h"
#include "runtime/controller.h"

namespace varda::cluster {

/// The chosen node, or why there is no choice.
struct Binding {
  std::string node;     // empty: unschedulable
  std::string message;  // "0/2 nodes are available: 1 node(s) were not ready, ..."
};

/// Pure. `pods_on`: number of pods by node. The Ready condition of a node that is not ready implies
/// the usual taints.
Binding plan_binding(const api::Pod& pod,
                     const std::vector<std::shared_ptr<const api::Node>>& nodes,
                     const std::map<std::string, std::size_t>& pods_on);

/// Why a node rejects a pod; "": the node accepts it.
std::string node_refusal(const api::Pod& pod, const api::Node& node);
/// True if a bound pod may stay: only node selection and NoExecute taints count.
bool may_stay_on(const api::Pod& pod, const api::Node& node);

/// Also ends pods of removed nodes, which no other controller would do.
class SchedulerReconciler {
 public:
  SchedulerReconciler(const runtime::Caches& caches, const kube::Client& client,
                      const Options& options);

  void watches(runtime::Watches<api::Pod>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const api::Pod& pod,
                                    runtime::Writer& writer);
  Result<runtime::Action> on_deleted(const Context& ctx, const meta::ObjectKey& key,
                                     runtime::Writer& writer);

 private:
  Result<runtime::Action> bind(const Context& ctx, const api::Pod& pod, runtime::Writer& writer);
  Result<runtime::Action> watch_over(const Context& ctx, const api::Pod& pod);
  Status end(const Context& ctx, const api::Pod& pod) const;

  const runtime::Caches& caches_;
  const kube::Client& client_;
  const Options options_;
  const Clock& clock_;
  // One worker: no lock. Both maps by pod key: bindings that the cache does not show yet, and since
  // when a pod's node is missing.
  std::map<meta::ObjectKey, std::string> assumed_;
  std::map<meta::ObjectKey, SteadyTime> missing_;
};

}  // namespace varda::cluster
