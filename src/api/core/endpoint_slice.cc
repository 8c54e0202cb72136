#include "api/core/endpoint_slice.h"

#include <algorithm>

#include "api/describe.h"

namespace varda::api {

void SliceConditions::describe(Type<SliceConditions>& t) {
  t.field("ready", &SliceConditions::ready, "The endpoint accepts requests.");
  t.keep_unknown(&SliceConditions::unknown);
}

void SliceEndpoint::describe(Type<SliceEndpoint>& t) {
  t.field("addresses", &SliceEndpoint::addresses, "Addresses of one pod.");
  t.field("conditions", &SliceEndpoint::conditions, "State.");
  t.field("nodeName", &SliceEndpoint::node_name, "Node of the pod.");
  t.field("targetRef", &SliceEndpoint::target_ref, "The pod.");
  t.keep_unknown(&SliceEndpoint::unknown);
}

void SlicePort::describe(Type<SlicePort>& t) {
  t.field("name", &SlicePort::name, "Name of the port.");
  t.field("port", &SlicePort::port, "Port.");
  t.field("protocol", &SlicePort::protocol, "TCP or UDP.");
  t.keep_unknown(&SlicePort::unknown);
}

void EndpointSlice::describe(Type<EndpointSlice>& t) {
  t.field("metadata", &EndpointSlice::metadata, "Metadata.");
  t.field("addressType", &EndpointSlice::address_type, "IPv4, IPv6 or FQDN.");
  t.field("endpoints", &EndpointSlice::endpoints, "Pods.");
  t.field("ports", &EndpointSlice::ports, "Ports of each endpoint.");
  t.keep_unknown(&EndpointSlice::unknown);
}

bool EndpointSlice::any_ready() const {
  return std::any_of(endpoints.begin(), endpoints.end(),
                     [](const SliceEndpoint& one) { return one.ready(); });
}

std::string EndpointSlice::service_name() const {
  const auto label = metadata.labels.find(std::string(kServiceName));
  return label == metadata.labels.end() ? "" : label->second;
}

const meta::Resource& EndpointSlice::resource() {
  static const meta::Resource resource{"discovery.k8s.io", "v1", "EndpointSlice", "endpointslices",
                                       true};
  return resource;
}

Result<EndpointSlice> EndpointSlice::from_json(const Json& object) {
  return read_object<EndpointSlice>(object);
}
Json EndpointSlice::to_json() const { return write_object(*this); }

}  // namespace varda::api
