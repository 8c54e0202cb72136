#include "hosting/port_claims.h"

#include <set>
#include <tuple>

namespace varda::hosting {

using codec::Json;

std::vector<HostPort> host_ports(const Json& pod_spec) {
  const bool host = pod_spec["hostNetwork"].as_bool();
  std::set<HostPort> ports;
  for (const char* list : {"initContainers", "containers"}) {
    for (const Json& container : pod_spec[list].as_array()) {
      for (const Json& port : container["ports"].as_array()) {
        std::int64_t number = port["hostPort"].as_integer();
        if (number == 0 && host) number = port["containerPort"].as_integer();
        if (number != 0) ports.insert({number, port["protocol"].string_or("TCP")});
      }
    }
  }
  return {ports.begin(), ports.end()};
}

std::vector<HostPort> host_ports(const api::PodSpec& pod_spec) {
  std::set<HostPort> ports;
  for (const auto* list : {&pod_spec.init_containers, &pod_spec.containers}) {
    for (const api::Container& container : *list) {
      for (const api::ContainerPort& port : container.ports) {
        std::int64_t number = port.host_port;
        if (number == 0 && pod_spec.host_network) number = port.container_port;
        if (number != 0) ports.insert({number, port.protocol.empty() ? "TCP" : port.protocol});
      }
    }
  }
  return {ports.begin(), ports.end()};
}

const PortClaim* port_holder(const PortClaim& claim, const std::vector<PortClaim>& others) {
  using Age = std::tuple<bool, const std::string&, const std::string&>;
  const auto age = [](const PortClaim& c) { return Age(!c.held, c.since, c.owner); };
  const PortClaim* oldest = nullptr;
  for (const PortClaim& other : others) {
    if (other.port != claim.port || other.node != claim.node || other.protocol != claim.protocol ||
        other.uid == claim.uid)
      continue;
    if (age(other) < age(oldest != nullptr ? *oldest : claim)) oldest = &other;
  }
  return oldest;
}

std::string holder_text(const PortClaim& holder) {
  return (holder.held ? "is in use by " : "belongs to the older ") + holder.owner;
}

std::int64_t choose_port(const PortClaim& current, const std::vector<PortClaim>& others,
                         std::int64_t first, std::int64_t last) {
  if (current.port != 0 && port_holder(current, others) == nullptr) return current.port;
  std::set<std::int64_t> taken;
  for (const PortClaim& other : others) {
    if (other.node == current.node && other.uid != current.uid &&
        other.protocol == current.protocol)
      taken.insert(other.port);
  }
  for (std::int64_t port = first; port <= last; ++port) {
    if (!taken.contains(port)) return port;
  }
  return 0;
}

}  // namespace varda::hosting
