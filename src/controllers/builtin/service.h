// Services: a TCP listener on this machine for each node port, balancing over the ready pods, and the Endpoints and
// EndpointSlices that say so.
//
// Changes are gentle, as they are where connections are tracked by a kernel: what is connected stays with its pod, whether ports,
// selector or the Service itself change or go. Only who connects afterwards sees the change.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/core/endpoint_slice.h"
#include "api/core/endpoints.h"
#include "api/core/pod.h"
#include "api/core/service.h"
#include "controllers/builtin/builtin.h"
#include "net/tcp_proxy.h"
#include "runtime/controller.h"

namespace varda::controllers {

struct ServicePlan {
  struct Port {
    std::string name;
    int node_port = 0;                  // 0: none is opened
    std::vector<std::string> backends;  // "IP:PORT" of ready pods
  };
  std::vector<Port> ports;
  bool managed = false;   // false: no selector; its Endpoints are somebody else's
  codec::Json endpoints;  // the object, as if every port of the service were open

  /// The Endpoints and the EndpointSlices of the service: with its ready pods, or, while its ports cannot be opened, without.
  enum class Ports { kOpen, kClosed };
  std::vector<codec::Json> objects(Ports ports) const;
};

/// Pure. `pods`: of the namespace all that it selects, and maybe others.
ServicePlan plan_service(const api::Service& service, const std::vector<std::shared_ptr<const api::Pod>>& pods);
/// The Endpoints of a service nobody can reach: its ready addresses are not ready.
codec::Json without_ready(codec::Json endpoints);
/// The same as EndpointSlices: one for each subset, and one without pods where there is none.
std::vector<codec::Json> slices_of(const codec::Json& endpoints);

class ServiceReconciler {
 public:
  ServiceReconciler(const runtime::Caches& caches, const BuiltinOptions& options);

  void watches(runtime::Watches<api::Service>& w) const;
  /// Endpoints and EndpointSlices are written only once connections are forwarded to them.
  Result<runtime::Action> reconcile(const Context& ctx, const api::Service& service, runtime::Writer& writer);
  Result<runtime::Action> gone(const Context& ctx, const meta::ObjectKey& key, runtime::Writer& writer);

 private:
  using Ports = std::map<int, std::unique_ptr<net::TcpProxy>>;
  /// No longer listened on.
  struct Draining {
    std::unique_ptr<net::TcpProxy> proxy;
    SteadyTime until;
  };

  Status open_ports(const meta::ObjectKey& key, const ServicePlan& plan);
  void close_port(std::unique_ptr<net::TcpProxy> proxy);
  /// Ends what has drained, or had its time; comes back for the rest.
  runtime::Action drain();

  const runtime::Caches& caches_;
  const BuiltinOptions options_;
  const std::shared_ptr<net::ProxyThread> thread_;
  const Clock& clock_;
  // One worker: no lock.
  std::map<meta::ObjectKey, Ports> open_;  // by node port
  std::vector<Draining> draining_;
};

}  // namespace varda::controllers
