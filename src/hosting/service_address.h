// The address of a Service for clients outside the cluster's network. Pure; shared by kinds that
// create Services.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/core/endpoint_slice.h"
#include "api/core/service.h"
#include "hosting/placement.h"

namespace varda::hosting {

struct ServiceWorld {
  std::shared_ptr<const api::Service> service;
  const std::vector<std::shared_ptr<const api::EndpointSlice>>& slices;  // endpoints for proxies
  const NodeList& nodes;
  /// One machine: the address of its node ports ("127.0.0.1"). Empty: a cluster, where any node has
  /// them.
  const std::string& node_port_host;
  /// The last published URL. A node port keeps its node's address while the node exists, so that
  /// clients keep a stable URL.
  const std::string& reported;
};

struct ServiceAddress {
  std::string url;                 // "" not yet
  std::optional<Problem> problem;  // LoadBalancerPending, NoNodeAddress: needs action
};

/// Index of EndpointSlices by Service, and the index key.
inline constexpr std::string_view kSlicesByService = "slices-by-service";
std::vector<std::string> slices_by_service(const api::EndpointSlice& slice);

/// kAnswering: no address before an endpoint is Ready. kAllocated: as soon as the address is known.
enum class ServiceState { kAnswering, kAllocated };
ServiceAddress service_address(const ServiceWorld& world, ServiceState state);

/// The address of a node that forwards node ports, in a cluster. "": no node does.
std::string address_of_node_ports(const NodeList& nodes);

}  // namespace varda::hosting
