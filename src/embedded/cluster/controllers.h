// Controllers that a cluster normally provides, for a single machine: pod scheduling, Deployments,
// Services as local ports, node liveness. `varda up` runs them beside the controllers of our own
// kinds; on a real cluster they stay off.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/clock.h"
#include "cluster/sessions.h"
#include "kube/client.h"
#include "runtime/manager.h"

namespace varda::cluster {

struct Options {
  std::string node_port_host = "127.0.0.1";          // listen address of node ports
  std::chrono::seconds connection_drain{3600};       // limit for connections to a removed node port
  std::chrono::milliseconds disconnect_grace{2000};  // time without an agent watch until Unknown
  std::chrono::seconds missing_node_grace{20};       // before pods of a removed node are deleted
  std::chrono::seconds failed_pod_delay{10};         // pod age before a failed pod is replaced
  std::chrono::seconds job_backoff{10};              // before a Job replaces a failed pod; doubles
  bool services = true;          // false: opens no ports and writes no Endpoints
  const Clock* clock = nullptr;  // null: the system clock
};

/// Owns the reconcilers and the open ports.
class Controllers {
 public:
  virtual ~Controllers() = default;
};

/// Call before manager.run(). `client` and `sessions` outlive the run. Destroy the result, which
/// closes the ports, after run() has returned and before the manager. The EdgeNode CRD must exist
/// before the manager runs.
std::unique_ptr<Controllers> add_all(runtime::Manager& manager, const kube::Client& client,
                                     NodeSessions& sessions, Options options = {});

}  // namespace varda::cluster
