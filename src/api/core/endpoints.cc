#include "api/core/endpoints.h"

#include "api/describe.h"
#include "meta/resources.h"

namespace varda::api {

void EndpointAddress::describe(Type<EndpointAddress>& t) {
  t.field("ip", &EndpointAddress::ip, "Address.").required();
  t.field("nodeName", &EndpointAddress::node_name, "Node of the pod.");
  t.field("targetRef", &EndpointAddress::target_ref, "The pod.");
  t.keep_unknown(&EndpointAddress::unknown);
}

void EndpointPort::describe(Type<EndpointPort>& t) {
  t.field("name", &EndpointPort::name, "Name of the port.");
  t.field("port", &EndpointPort::port, "Port.").required();
  t.field("protocol", &EndpointPort::protocol, "TCP or UDP.");
  t.keep_unknown(&EndpointPort::unknown);
}

void EndpointSubset::describe(Type<EndpointSubset>& t) {
  t.field("addresses", &EndpointSubset::addresses, "Ready addresses.");
  t.field("notReadyAddresses", &EndpointSubset::not_ready_addresses, "Others.");
  t.field("ports", &EndpointSubset::ports, "Ports.");
  t.keep_unknown(&EndpointSubset::unknown);
}

void Endpoints::describe(Type<Endpoints>& t) {
  t.field("metadata", &Endpoints::metadata, "Metadata.");
  t.field("subsets", &Endpoints::subsets, "Addresses and ports.");
  t.keep_unknown(&Endpoints::unknown);
}

bool Endpoints::any_ready() const {
  for (const EndpointSubset& subset : subsets) {
    if (!subset.addresses.empty()) return true;
  }
  return false;
}

const meta::Resource& Endpoints::resource() { return meta::core::endpoints(); }

Result<Endpoints> Endpoints::from_json(const Json& object) {
  return read_object<Endpoints>(object);
}
Json Endpoints::to_json() const { return write_object(*this); }

}  // namespace varda::api
