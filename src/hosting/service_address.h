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
  const NodeList& nodes;  // those of NodeSet::add_forwarding() suffice
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

/// The address of the node for clients of node ports, in a cluster. "": the node forwards none. A
/// Ready node of the cloud layer does.
std::string forwarding_address(const api::Node& node);
/// The first such address. "": no node forwards.
std::string address_of_node_ports(const NodeList& nodes);

/// The host of a URL as http_url() writes it, without brackets; "": none.
std::string host_of(std::string_view url);

}  // namespace varda::hosting
