// What a cluster would bring, for one machine: binding of Pods to Nodes, Deployments as Pods, Services as local ports, liveness of
// nodes. `varda up` adds these to its manager beside the controllers of our own kinds; with a real cluster they are not used.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/clock.h"
#include "controllers/builtin/sessions.h"
#include "kube/client.h"
#include "runtime/manager.h"

namespace varda::controllers {

struct BuiltinOptions {
  std::string node_port_host = "127.0.0.1";          // where node ports are listened on
  std::chrono::seconds connection_drain{3600};       // what is connected to a node port that is no more may go on for so long
  std::chrono::milliseconds disconnect_grace{2000};  // without any watch of its agent before a node counts as cut off
  std::chrono::seconds missing_node_grace{20};       // before pods of a node that is no more are deleted
  std::chrono::seconds failed_pod_delay{10};         // before a Deployment replaces a pod that failed, by the pod's age
  std::chrono::seconds job_backoff{10};              // before a Job replaces its first pod that failed; doubles with each
  bool services = true;                              // false: no ports are opened and no Endpoints written
  const Clock* clock = nullptr;                      // null: the machine's
};

/// Keeps the reconcilers and the open ports alive.
class Builtin {
 public:
  virtual ~Builtin() = default;
};

/// Before manager.run(). `client` and `sessions` outlive the manager's run; destroy the result after run() has returned, which
/// closes the ports, and before the manager. The CRD of EdgeNode must be in the API server by the time the manager runs.
std::unique_ptr<Builtin> add_builtin(runtime::Manager& manager, const kube::Client& client, NodeSessions& sessions,
                                     BuiltinOptions options = {});

}  // namespace varda::controllers
