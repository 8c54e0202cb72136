// Where a Service answers, as who is outside of its cluster's network may ask it. Pure; shared by the kinds that make Services.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/core/endpoint_slice.h"
#include "api/core/service.h"
#include "controllers/inferencemodel/placement.h"

namespace varda::controllers {

struct ServiceWorld {
  std::shared_ptr<const api::Service> service;
  const std::vector<std::shared_ptr<const api::EndpointSlice>>& slices;  // what the cluster's proxies forward to
  const NodeList& nodes;
  /// One machine: the address its node ports answer at ("127.0.0.1"). Empty: a cluster, where any node's does.
  const std::string& node_port_host;
  /// The URL that was told last. A node port stays with its node as long as that is there, so that clients are not sent about for
  /// nothing.
  const std::string& told;
};

struct ServiceAddress {
  std::string url;                 // "" not yet
  std::optional<Problem> problem;  // LoadBalancerPending, NoNodeAddress: why there will be none by itself
};

/// Index of EndpointSlices by their Service, and its key.
inline constexpr std::string_view kSlicesByService = "slices-by-service";
std::vector<std::string> slices_by_service(const api::EndpointSlice& slice);

/// kAnswering: nothing before somebody is Ready behind it. kAllocated: as soon as the address is known.
enum class ServiceState { kAnswering, kAllocated };
ServiceAddress service_address(const ServiceWorld& world, ServiceState state);

}  // namespace varda::controllers
