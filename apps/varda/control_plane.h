// Control plane of one machine in this process: store, API server, kinds, operator, built-in
// controllers.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "datadir/up_state.h"
#include "hosting/servers.h"
#include "limit_flags.h"

namespace varda::app {

/// Runs from start() to stop(). Thread-safe.
class ControlPlane {
 public:
  struct Options {
    std::filesystem::path data_dir;
    std::string listen;                // "127.0.0.1:6443"
    bool listen_any_if_taken = false;  // use any free port if the address is in use
    std::string gateway;               // address of the gateway for further nodes; "": none
    bool gateway_any_if_taken = false;
    std::string registry;  // address of the registry; "": none
    bool registry_any_if_taken = false;
    std::string node_port_host = "127.0.0.1";  // where node ports listen
    // Credentials go to nodes/NAME/agent.kubeconfig, identities for peers to
    // nodes/NAME/data/identity.
    std::vector<datadir::NodeSpec> nodes;
    ApiLimits limits;
    std::optional<apiserver::AuditLog::Options> audit;
    hosting::Options inference_models;
  };
  /// Returns when the API answers and the kinds are installed. kUnavailable: the address or the
  /// store is in use.
  static Result<std::unique_ptr<ControlPlane>> start(Options options);
  virtual ~ControlPlane() = default;

  virtual std::string address() const = 0;          // "127.0.0.1:41873"
  virtual std::string url() const = 0;              // "https://127.0.0.1:41873"
  virtual std::string gateway_address() const = 0;  // "": none
  virtual std::string registry_url() const = 0;     // "http://127.0.0.1:8092"; "": none
  /// Blocks until the agents of all nodes are connected, the Nodes Ready and the EdgeNodes
  /// Connected. kTimeout at the deadline of `ctx`: the message names a node and the missing state.
  virtual Status wait_for_nodes(const Context& ctx) = 0;
  /// Blocks until `ctx` stops (success) or the controllers fail.
  virtual Status wait(const Context& ctx) = 0;
  /// Deletes the Node, the EdgeNode and the pods of a node that is no longer declared. The caller
  /// has ended the node's processes. The node's directory stays for a later declaration. Ok if the
  /// node is unknown.
  virtual Status forget_node(const std::string& name) = 0;
  virtual void stop() = 0;
};

}  // namespace varda::app
