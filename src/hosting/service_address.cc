#include "hosting/service_address.h"

#include <algorithm>

#include "hosting/pod_problem.h"

namespace varda::hosting {

namespace {

bool is_ready(const api::Node& node) {
  const api::CoreCondition* ready = find_condition(node.status.conditions, "Ready");
  return ready != nullptr && ready->status == "True";
}

std::vector<std::string> node_port_addresses(const NodeList& nodes) {
  std::vector<std::string> addresses;
  for (const auto& node : nodes) {
    if (std::string address = forwarding_address(*node); !address.empty())
      addresses.push_back(std::move(address));
  }
  return addresses;
}

std::string node_port_address(const ServiceWorld& world, std::int64_t port) {
  const std::vector<std::string> addresses = node_port_addresses(world.nodes);
  const auto reported = std::find_if(addresses.begin(), addresses.end(), [&](const auto& address) {
    return world.reported == http_url(address, port);
  });
  if (reported != addresses.end()) return *reported;
  return addresses.empty() ? "" : addresses.front();
}

}  // namespace

std::string forwarding_address(const api::Node& node) {
  if (!is_ready(node) || node.metadata.labels.contains("node-role.kubernetes.io/edge")) return "";
  const std::string external = node.address("ExternalIP");
  return external.empty() ? node.address("InternalIP") : external;
}

std::string host_of(std::string_view url) {
  const auto scheme = url.find("://");
  if (scheme == std::string_view::npos) return "";
  url.remove_prefix(scheme + 3);
  const bool v6 = url.starts_with('[');
  if (v6) url.remove_prefix(1);
  const auto end = url.find(v6 ? ']' : ':');
  return end == std::string_view::npos ? "" : std::string(url.substr(0, end));
}

std::string address_of_node_ports(const NodeList& nodes) {
  const std::vector<std::string> addresses = node_port_addresses(nodes);
  return addresses.empty() ? "" : addresses.front();
}

std::vector<std::string> slices_by_service(const api::EndpointSlice& slice) {
  const std::string service = slice.service_name();
  if (service.empty()) return {};
  return {meta::ObjectKey{slice.metadata.ns, service}.str()};
}

ServiceAddress service_address(const ServiceWorld& world, ServiceState state) {
  if (world.service == nullptr || world.service->spec.ports.empty()) return {};
  const api::ServicePort& port = world.service->spec.ports.front();
  const std::string& type = world.service->spec.type;
  const bool one_machine = !world.node_port_host.empty();
  const codec::Json& ingress = world.service->status.load_balancer["ingress"];
  if (type == "LoadBalancer" && ingress.empty() && !one_machine) {
    return {"", Problem{"LoadBalancerPending",
                        "the cluster's load balancer has not assigned an address to the Service "
                        "yet; service.type NodePort needs "
                        "no load balancer"}};
  }
  const bool answers = std::any_of(world.slices.begin(), world.slices.end(),
                                   [](const auto& slice) { return slice->any_ready(); });
  if (state == ServiceState::kAnswering && !answers) return {};
  if (type == "LoadBalancer" && !ingress.empty()) {
    const codec::Json& first = ingress.as_array().front();
    return {
        http_url(first["ip"].is_string() ? first["ip"].as_string() : first["hostname"].as_string(),
                 port.port),
        {}};
  }
  if (port.node_port != 0) {
    const std::string host =
        one_machine ? world.node_port_host : node_port_address(world, port.node_port);
    if (!host.empty()) return {http_url(host, port.node_port), {}};
    if (!one_machine)
      return {"", Problem{"NoNodeAddress",
                          "no Ready node of the cloud layer reports an address for the node port"}};
  }
  if (one_machine) {
    // One machine has no cluster addresses; a pod's own address works for every local client.
    for (const auto& slice : world.slices) {
      for (const api::SliceEndpoint& pod : slice->endpoints) {
        if (pod.ready())
          return {http_url(pod.addresses.front(),
                           slice->ports.empty() ? port.port : slice->ports.front().port),
                  {}};
      }
    }
    return {};
  }
  if (type == "NodePort") return {};  // the node port is not assigned yet
  return {
      http_url(world.service->metadata.name + "." + world.service->metadata.ns + ".svc", port.port),
      {}};
}

}  // namespace varda::hosting
