// Liveness of nodes: agent sessions set the condition Ready of Nodes and Connected of EdgeNodes, on
// transitions only.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/core/node.h"
#include "api/edgeai/edge_node.h"
#include "cluster/controllers.h"
#include "runtime/controller.h"

namespace varda::cluster {

/// The due state of the condition; undecided: unchanged until `again`.
struct Liveness {
  enum class State { kUndecided, kConnected, kDisconnected };
  State state = State::kUndecided;
  Duration again{};  // for kUndecided: time until the grace period ends
};
/// Pure.
Liveness judge(const NodeSessions::State& session, SteadyTime now, Duration grace);

/// Also maintains the node's Lease, which `kubectl describe node` reads. Writes it on transitions
/// only.
class NodeReconciler {
 public:
  NodeReconciler(const NodeSessions& sessions, const kube::Client& client, const Options& options);
  void watches(runtime::Watches<api::Node>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const api::Node& node,
                                    runtime::Writer& writer);
  Result<runtime::Action> on_deleted(const Context& ctx, const meta::ObjectKey& key,
                                     runtime::Writer& writer);

 private:
  Status renew_lease(const Context& ctx, const api::Node& node, WallTime seen);

  const NodeSessions& sessions_;
  const kube::Client& client_;
  const Options options_;
  const Clock& clock_;
  std::map<std::string, Liveness::State>
      leases_;  // by node name, as written by this process; one worker
};

class EdgeNodeLivenessReconciler {
 public:
  EdgeNodeLivenessReconciler(const NodeSessions& sessions, const Options& options);
  void watches(runtime::Watches<api::EdgeNode>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const api::EdgeNode& node,
                                    runtime::Writer& writer) const;

 private:
  const NodeSessions& sessions_;
  const Options options_;
  const Clock& clock_;
};

}  // namespace varda::cluster
