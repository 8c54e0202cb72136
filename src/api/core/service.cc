#include "api/core/service.h"

#include "api/describe.h"
#include "meta/resources.h"

namespace varda::api {

void ServicePort::describe(Type<ServicePort>& t) {
  t.field("name", &ServicePort::name, "Name of the port.");
  t.field("protocol", &ServicePort::protocol, "TCP or UDP.");
  t.field("port", &ServicePort::port, "Port of the service.").required();
  t.field("targetPort", &ServicePort::target_port, "Port or port name of the pods.");
  t.field("nodePort", &ServicePort::node_port, "Port on the nodes.");
  t.keep_unknown(&ServicePort::unknown);
}

void ServiceSpec::describe(Type<ServiceSpec>& t) {
  t.field("type", &ServiceSpec::type, "ClusterIP, NodePort, LoadBalancer or ExternalName.");
  t.field("clusterIP", &ServiceSpec::cluster_ip, "Address in the cluster.");
  t.field("selector", &ServiceSpec::selector, "Labels of the pods.");
  t.field("ports", &ServiceSpec::ports, "Ports.");
  t.keep_unknown(&ServiceSpec::unknown);
}

void ServiceStatus::describe(Type<ServiceStatus>& t) {
  t.field("loadBalancer", &ServiceStatus::load_balancer, "Addresses of the load balancer.");
  t.keep_unknown(&ServiceStatus::unknown);
}

void Service::describe(Type<Service>& t) {
  t.field("metadata", &Service::metadata, "Metadata.");
  t.field("spec", &Service::spec, "Spec.");
  t.field("status", &Service::status, "Status.");
  t.keep_unknown(&Service::unknown);
}

const meta::Resource& Service::resource() { return meta::core::services(); }

Result<Service> Service::from_json(const Json& object) { return read_object<Service>(object); }
Json Service::to_json() const { return write_object(*this); }

}  // namespace varda::api
