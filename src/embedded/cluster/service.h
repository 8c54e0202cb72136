// Services: a local TCP listener for each node port, balancing over the ready pods, with the
// matching Endpoints and EndpointSlices.
//
// Changes do not break connections, as with a kernel's connection tracking. Open connections stay
// with their pod when ports, selector or the Service itself change or are deleted. Only new
// connections see a change.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/core/endpoint_slice.h"
#include "api/core/endpoints.h"
#include "api/core/pod.h"
#include "api/core/service.h"
#include "cluster/controllers.h"
#include "net/tcp_proxy.h"
#include "runtime/controller.h"

namespace varda::cluster {

struct ServicePlan {
  struct Port {
    std::string name;
    int node_port = 0;                  // 0: no node port
    std::vector<std::string> backends;  // "IP:PORT" of ready pods
  };
  std::vector<Port> ports;
  bool managed = false;   // false: no selector; another party writes the Endpoints
  codec::Json endpoints;  // the Endpoints object, if every port of the service is open

  /// The Endpoints and EndpointSlices of the service; with kClosed no pod is ready, since the ports
  /// could not be opened.
  enum class Ports { kOpen, kClosed };
  std::vector<codec::Json> objects(Ports ports) const;
};

/// Pure. `pods`: all pods that the service selects; further pods of the namespace are ignored.
ServicePlan plan_service(const api::Service& service,
                         const std::vector<std::shared_ptr<const api::Pod>>& pods);
/// The Endpoints of an unreachable service: its ready addresses become not ready.
codec::Json without_ready(codec::Json endpoints);
/// The same as EndpointSlices: one per subset, or one empty slice without subsets.
std::vector<codec::Json> slices_of(const codec::Json& endpoints);

class ServiceReconciler {
 public:
  ServiceReconciler(const runtime::Caches& caches, const Options& options);

  void watches(runtime::Watches<api::Service>& w) const;
  /// Endpoints and EndpointSlices are written only after the listener forwards to them.
  Result<runtime::Action> reconcile(const Context& ctx, const api::Service& service,
                                    runtime::Writer& writer);
  Result<runtime::Action> on_deleted(const Context& ctx, const meta::ObjectKey& key,
                                     runtime::Writer& writer);

 private:
  using Ports = std::map<int, std::unique_ptr<net::TcpProxy>>;
  /// A closed listener with open connections.
  struct Draining {
    std::unique_ptr<net::TcpProxy> proxy;
    SteadyTime until;
  };

  Status open_ports(const meta::ObjectKey& key, const ServicePlan& plan);
  void close_port(std::unique_ptr<net::TcpProxy> proxy);
  /// Closes listeners without connections or past their time; requeues for the rest.
  runtime::Action drain();

  const runtime::Caches& caches_;
  const Options options_;
  const std::shared_ptr<net::ProxyThread> thread_;
  const Clock& clock_;
  // One worker: no lock.
  std::map<meta::ObjectKey, Ports> open_;  // by node port
  std::vector<Draining> draining_;
};

}  // namespace varda::cluster
