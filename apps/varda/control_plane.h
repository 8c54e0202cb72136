// The control plane of one machine in this process: store, API server, kinds, operator, built-in controllers.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "controllers/inferencemodel/options.h"
#include "limit_flags.h"

namespace varda::app {

/// Runs from start() to stop(). Thread-safe.
class ControlPlane {
 public:
  struct Options {
    std::filesystem::path data_dir;
    std::string listen;                // "127.0.0.1:6443"
    bool listen_any_if_taken = false;  // take a free port rather than fail
    std::string gateway;               // address of the gateway for further nodes; "" none
    bool gateway_any_if_taken = false;
    std::string node_port_host = "127.0.0.1";  // where node ports listen
    std::vector<std::string> nodes;            // each gets credentials in nodes/NAME/agent.kubeconfig
    ApiLimits limits;
    std::optional<apiserver::AuditLog::Options> audit;
    controllers::InferenceModelOptions inference_models;
  };
  /// The API answers and the kinds are installed when this returns. kUnavailable: the address or the store is in use.
  static Result<std::unique_ptr<ControlPlane>> start(Options options);
  virtual ~ControlPlane() = default;

  virtual std::string address() const = 0;          // "127.0.0.1:41873"
  virtual std::string url() const = 0;              // "https://127.0.0.1:41873"
  virtual std::string gateway_address() const = 0;  // "" none
  /// Until the agents of all those nodes are connected and their Nodes and EdgeNodes say so. kTimeout at the deadline of `ctx`: the
  /// message names a node and what it lacks.
  virtual Status wait_for_nodes(const Context& ctx) = 0;
  /// Until `ctx` stops (success) or the controllers fail.
  virtual Status wait(const Context& ctx) = 0;
  /// A node of an earlier run that is declared no more and whose processes have ended: its Node and EdgeNode go, and with them what
  /// was bound to it. Its directory stays, for the day it is declared again. None there is success.
  virtual Status forget_node(const std::string& name) = 0;
  virtual void stop() = 0;
};

}  // namespace varda::app
