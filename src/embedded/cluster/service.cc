#include "cluster/service.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "cluster/indexes.h"
#include "meta/node_address.h"

namespace varda::cluster {

namespace {

using codec::Json;
using meta::ObjectKey;
using PodPtr = std::shared_ptr<const api::Pod>;

/// The pod's port for a port of the service; empty: the pod has no port of that name.
std::optional<std::int64_t> target_of(const api::ServicePort& port, const api::Pod& pod) {
  if (port.target_port.is_integer() && port.target_port.as_integer() > 0)
    return port.target_port.as_integer();
  const std::string& name = port.target_port.as_string();
  if (name.empty()) return port.port;
  for (const api::Container& container : pod.spec.containers) {
    for (const api::ContainerPort& exposed : container.ports) {
      if (exposed.name == name) return exposed.container_port;
    }
  }
  return std::nullopt;
}

bool has_finished(const api::Pod& pod) {
  return pod.status.phase == "Succeeded" || pod.status.phase == "Failed";
}

std::string joined(const std::string& ip, std::int64_t port) {
  return (ip.find(':') == std::string::npos ? ip : "[" + ip + "]") + ":" + std::to_string(port);
}

/// False for a loopback address of another machine's pod: it would lead clients to the client's own
/// machine.
bool reachable(const api::PodStatus& status) {
  const auto is_loopback = [](const std::string& ip) {
    return meta::address_scope(ip) == meta::AddressScope::kLoopback;
  };
  return !status.pod_ip.empty() && (!is_loopback(status.pod_ip) || is_loopback(status.host_ip));
}

/// Pods with the same port numbers share a subset.
struct Subset {
  Json ready = Json::array(), not_ready = Json::array();
};

Json address_of(const api::Pod& pod) {
  Json address = Json::object({{"ip", pod.status.pod_ip}});
  if (!pod.spec.node_name.empty()) address.set("nodeName", pod.spec.node_name);
  address.set("targetRef", Json::object({{"kind", "Pod"},
                                         {"namespace", pod.metadata.ns},
                                         {"name", pod.metadata.name},
                                         {"uid", pod.metadata.uid}}));
  return address;
}

std::vector<ObjectKey> services_of(const api::Pod& pod, const runtime::Caches& caches) {
  std::vector<ObjectKey> keys;
  for (const auto& service : services_selecting(caches, pod.metadata.ns, pod.metadata.labels))
    keys.push_back(service->metadata.key());
  return keys;
}

}  // namespace

ServicePlan plan_service(const api::Service& service, const std::vector<PodPtr>& pods) {
  ServicePlan plan;
  plan.managed = !service.spec.selector.empty() && service.spec.type != "ExternalName";
  if (!plan.managed) return plan;
  const bool opens = service.spec.type == "NodePort" || service.spec.type == "LoadBalancer";
  for (const api::ServicePort& port : service.spec.ports) {
    const bool tcp = port.protocol.empty() || port.protocol == "TCP";
    plan.ports.push_back({.name = port.name,
                          .node_port = opens && tcp ? static_cast<int>(port.node_port) : 0,
                          .backends = {}});
  }
  std::map<std::vector<std::int64_t>, Subset> subsets;
  for (const PodPtr& pod : pods) {
    if (!has_all(pod->metadata.labels, service.spec.selector) || !reachable(pod->status) ||
        pod->metadata.deleting() || has_finished(*pod))
      continue;
    std::vector<std::int64_t> targets;
    for (std::size_t i = 0; i < service.spec.ports.size(); ++i) {
      const auto target = target_of(service.spec.ports[i], *pod);
      targets.push_back(target.value_or(0));
      if (target && pod->ready())
        plan.ports[i].backends.push_back(joined(pod->status.pod_ip, *target));
    }
    Subset& subset = subsets[targets];
    (pod->ready() ? subset.ready : subset.not_ready).push_back(address_of(*pod));
  }
  Json list = Json::array();
  for (auto& [targets, subset] : subsets) {
    Json ports = Json::array();
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (targets[i] == 0) continue;
      const api::ServicePort& port = service.spec.ports[i];
      Json item = Json::object(
          {{"port", targets[i]}, {"protocol", port.protocol.empty() ? "TCP" : port.protocol}});
      if (!port.name.empty()) item.set("name", port.name);
      ports.push_back(std::move(item));
    }
    Json out = Json::object();
    if (!subset.ready.empty()) out.set("addresses", std::move(subset.ready));
    if (!subset.not_ready.empty()) out.set("notReadyAddresses", std::move(subset.not_ready));
    if (!ports.empty()) out.set("ports", std::move(ports));
    list.push_back(std::move(out));
  }
  plan.endpoints = Json::object({{"apiVersion", "v1"},
                                 {"kind", "Endpoints"},
                                 {"metadata", Json::object({{"name", service.metadata.name},
                                                            {"namespace", service.metadata.ns}})}});
  if (!list.empty()) plan.endpoints.set("subsets", std::move(list));
  return plan;
}

Json without_ready(Json endpoints) {
  if (!endpoints.contains("subsets")) return endpoints;
  for (Json& subset : endpoints["subsets"].array_items()) {
    Json all = std::as_const(subset)["addresses"];
    for (const Json& address : std::as_const(subset)["notReadyAddresses"].as_array())
      all.push_back(address);
    subset.erase("addresses");
    if (!all.empty()) subset.set("notReadyAddresses", std::move(all));
  }
  return endpoints;
}

std::vector<Json> slices_of(const Json& endpoints) {
  const std::string& service = endpoints.at("metadata/name").as_string();
  std::vector<Json> slices;
  const auto add = [&](const Json& subset) {
    Json pods = Json::array();
    std::string type = "IPv4";
    for (const char* list : {"addresses", "notReadyAddresses"}) {
      const bool ready = list == std::string_view("addresses");
      for (const Json& address : subset[list].as_array()) {
        const std::string& ip = address["ip"].as_string();
        if (ip.find(':') != std::string::npos) type = "IPv6";
        Json pod = Json::object(
            {{"addresses", Json::array({ip})},
             {"conditions",
              Json::object({{"ready", ready}, {"serving", ready}, {"terminating", false}})},
             {"targetRef", address["targetRef"]}});
        if (address.contains("nodeName")) pod.set("nodeName", address["nodeName"]);
        pods.push_back(std::move(pod));
      }
    }
    Json ports = Json::array();
    for (const Json& port : subset["ports"].as_array()) {
      ports.push_back(Json::object({{"name", port["name"].as_string()},
                                    {"port", port["port"]},
                                    {"protocol", port["protocol"]}}));
    }
    const std::string name =
        slices.empty() ? service : service + "-" + std::to_string(slices.size());
    slices.push_back(Json::object(
        {{"apiVersion", "discovery.k8s.io/v1"},
         {"kind", "EndpointSlice"},
         {"metadata",
          Json::object(
              {{"name", name},
               {"namespace", endpoints.at("metadata/namespace")},
               {"labels", Json::object({{std::string(api::EndpointSlice::kServiceName), service},
                                        {"endpointslice.kubernetes.io/managed-by", "varda"}})}})},
         {"addressType", type},
         {"endpoints", std::move(pods)},
         {"ports", std::move(ports)}}));
  };
  for (const Json& subset : endpoints["subsets"].as_array()) add(subset);
  if (slices.empty()) add(Json::object());
  return slices;
}

std::vector<Json> ServicePlan::objects(Ports state) const {
  const Json object = state == Ports::kOpen ? endpoints : without_ready(endpoints);
  std::vector<Json> all = slices_of(object);
  all.push_back(object);
  return all;
}

ServiceReconciler::ServiceReconciler(const runtime::Caches& caches, const Options& options)
    : caches_(caches),
      options_(options),
      thread_(net::make_proxy_thread()),
      clock_(options.clock ? *options.clock : system_clock()) {}

void ServiceReconciler::watches(runtime::Watches<api::Service>& w) const {
  w.owns<api::Endpoints>().owns<api::EndpointSlice>().maps<api::Pod>(services_of);
  w.indexes<api::Pod>(kPodsByLabel, pods_by_label)
      .indexes<api::Service>(kServicesByLabel, services_by_label);
}

Result<runtime::Action> ServiceReconciler::on_deleted(const Context&, const ObjectKey& key,
                                                      runtime::Writer&) {
  if (auto found = open_.extract(key)) {
    for (auto& [port, proxy] : found.mapped()) close_port(std::move(proxy));
  }
  return drain();
}

void ServiceReconciler::close_port(std::unique_ptr<net::TcpProxy> proxy) {
  proxy->finish();
  if (proxy->connections() > 0)
    draining_.push_back({std::move(proxy), clock_.now() + options_.connection_drain});
}

runtime::Action ServiceReconciler::drain() {
  const SteadyTime now = clock_.now();
  std::erase_if(draining_, [&](const Draining& one) {
    return one.proxy->connections() == 0 || one.until <= now;
  });
  if (draining_.empty()) return runtime::Action::await_change();
  // All have the same drain time: the first entry is due first.
  return runtime::Action::after(draining_.front().until - now);
}

Status ServiceReconciler::open_ports(const ObjectKey& key, const ServicePlan& plan) {
  auto& open = open_[key];
  const auto wanted = [&](int number) {
    return std::any_of(plan.ports.begin(), plan.ports.end(),
                       [&](const auto& port) { return port.node_port == number; });
  };
  Ports closing;
  for (auto it = open.begin(); it != open.end();) {
    const auto current = it++;
    if (!wanted(current->first)) closing.insert(open.extract(current));
  }
  Status first;
  for (const ServicePlan::Port& port : plan.ports) {
    if (port.node_port == 0) continue;
    auto& proxy = open[port.node_port];
    if (proxy) {
      Status taken = proxy->set_backends(port.backends);
      if (first.ok()) first = std::move(taken);
      continue;
    }
    auto made = net::TcpProxy::create(
        {.listen = options_.node_port_host + ":" + std::to_string(port.node_port),
         .thread = thread_},
        port.backends);
    if (made.ok()) {
      proxy = std::move(*made);
    } else {
      open.erase(port.node_port);
      if (first.ok()) first = made.error().context("node port " + std::to_string(port.node_port));
    }
  }
  // Closed last, so that some port is open at any time.
  for (auto& [port, proxy] : closing) close_port(std::move(proxy));
  return first;
}

Result<runtime::Action> ServiceReconciler::reconcile(const Context& ctx,
                                                     const api::Service& service,
                                                     runtime::Writer& writer) {
  const ObjectKey key = service.metadata.key();
  if (service.metadata.deleting()) return on_deleted(ctx, key, writer);
  const ServicePlan plan =
      plan_service(service, pods_labelled(caches_, service.metadata.ns, service.spec.selector));
  if (!plan.managed) return on_deleted(ctx, key, writer);
  const Status opened = open_ports(key, plan);
  TRY_VOID(writer.converge(
      ctx, service,
      plan.objects(opened.ok() ? ServicePlan::Ports::kOpen : ServicePlan::Ports::kClosed)));
  // Another process may release the port later: the runtime reports the error and retries.
  TRY_VOID(opened);
  return drain();
}

}  // namespace varda::cluster
