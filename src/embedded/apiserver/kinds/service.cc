// Service, Endpoints and EndpointSlice. The server assigns cluster addresses and node ports,
// because a kind sees only one object.
#include <algorithm>
#include <set>

#include "apiserver/kinds/core_kind.h"
#include "meta/object.h"

namespace varda::apiserver {

namespace {

bool needs_node_ports(const std::string& type) {
  return type == "NodePort" || type == "LoadBalancer";
}

std::string service_ports(const Json& spec) {
  std::string text;
  for (const Json& port : spec["ports"].as_array()) {
    if (!text.empty()) text += ",";
    text += std::to_string(port["port"].as_integer());
    if (port["nodePort"].as_integer() != 0)
      text += ":" + std::to_string(port["nodePort"].as_integer());
    text += "/" + port["protocol"].as_string();
  }
  return text.empty() ? "<none>" : text;
}

std::string external_address(const Json& service) {
  const std::string& type = service.at("spec/type").as_string();
  if (type == "ExternalName") return text_or(service.at("spec/externalName"), "<none>");
  std::string text;
  const auto add = [&](const std::string& address) {
    if (!address.empty()) text += (text.empty() ? "" : ",") + address;
  };
  if (type == "LoadBalancer") {
    for (const Json& ingress : service.at("status/loadBalancer/ingress").as_array())
      add(text_or(ingress["ip"], ingress["hostname"].as_string()));
  }
  for (const Json& address : service.at("spec/externalIPs").as_array()) add(address.as_string());
  if (text.empty()) return type == "LoadBalancer" ? "<pending>" : "<none>";
  return text;
}

class ServiceKind : public CoreKind {
 public:
  ServiceKind()
      : CoreKind({.info = {.resource = {"", "v1", "Service", "services", true},
                           .short_names = {"svc"},
                           .categories = {"all"},
                           .status = true,
                           .create_on_update = true,
                           .delete_returns_object = true}}) {}

  std::string check_name(std::string_view name, bool prefix) const override {
    constexpr const char* kLabel =
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
        "alphabetic character, and end "
        "with an "
        "alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
        "'[a-z]([-a-z0-9]*[a-z0-9])?')";
    std::string text(name);
    if (prefix && !text.empty() && text.back() == '-') text.back() = 'a';
    if (text.size() > 63) return "must be no more than 63 characters";
    const bool label =
        meta::check_dns_label(text).empty() && !text.empty() && text[0] >= 'a' && text[0] <= 'z';
    return label ? "" : kLabel;
  }

  void apply_defaults(Json& service) const override {
    CoreKind::apply_defaults(service);
    Json& spec = service["spec"];
    const std::string type = spec["type"].as_string();
    if (Json* ports = spec.find("ports"); ports != nullptr && ports->is_array()) {
      for (Json& port : ports->array_items()) {
        if (!port.is_object()) continue;
        const Json& target = port["targetPort"];
        if (target.is_null() || target == Json(0) || target == Json(""))
          port.set("targetPort", Json(port["port"]));
      }
    }
    if (needs_node_ports(type) && spec["externalTrafficPolicy"].as_string().empty())
      spec.set("externalTrafficPolicy", "Cluster");
    if (type != "ExternalName") {
      if (!spec.contains("internalTrafficPolicy")) spec.set("internalTrafficPolicy", "Cluster");
      if (!spec.contains("ipFamilies")) spec.set("ipFamilies", Json::array({"IPv4"}));
      if (!spec.contains("ipFamilyPolicy")) spec.set("ipFamilyPolicy", "SingleStack");
    }
    if (type == "LoadBalancer" && !spec.contains("allocateLoadBalancerNodePorts"))
      spec.set("allocateLoadBalancerNodePorts", true);
  }

  Causes validate_create(const Json& service) const override {
    Causes causes;
    const Json& spec = service["spec"];
    const std::string& type = spec["type"].as_string();
    static const std::vector<std::string> types = {"ClusterIP", "ExternalName", "LoadBalancer",
                                                   "NodePort"};
    if (std::find(types.begin(), types.end(), type) == types.end())
      causes.push_back(not_supported("spec.type", type, types));
    if (type == "ExternalName" && spec["externalName"].as_string().empty())
      causes.push_back(required("spec.externalName"));
    const std::string& affinity = spec["sessionAffinity"].as_string();
    if (affinity != "None" && affinity != "ClientIP") {
      causes.push_back(not_supported("spec.sessionAffinity", affinity, {"ClientIP", "None"}));
    }
    append(causes, validate_labels(spec["selector"], "spec.selector"));
    if (spec["ports"].empty() && type != "ExternalName" && spec["clusterIP"].as_string() != "None")
      causes.push_back(required("spec.ports"));
    check_ports(spec["ports"].as_array(), causes);
    return causes;
  }

  Causes validate_update(const Json& service, const Json& old, Part part) const override {
    if (part == Part::kStatus) return {};
    Causes causes;
    const Json& before = old.at("spec/clusterIP");
    const Json& now = service.at("spec/clusterIP");
    const bool addressed = old.at("spec/type").as_string() != "ExternalName" &&
                           service.at("spec/type").as_string() != "ExternalName";
    if (addressed && !before.as_string().empty() && !now.as_string().empty() && !(now == before)) {
      causes.push_back(
          {"FieldValueInvalid",
           "Invalid value: []string{" + go_quote(now.as_string()) + "}: may not change once set",
           "spec.clusterIPs[0]"});
    }
    append(causes, validate_create(service));
    return causes;
  }

  const std::vector<Column>& columns() const override {
    static const std::vector<Column> columns = {
        name_column(),
        column("Type", "Type of the service."),
        column("Cluster-IP", "Address inside the cluster."),
        column("External-IP", "Address outside the cluster."),
        column("Port(s)", "Ports of the service, with their node ports."),
        age_column(),
        column("Selector", "Labels of the service's pods.", 1),
    };
    return columns;
  }
  std::vector<Json> cells(const Json& service, WallTime now) const override {
    return {service.at("metadata/name"),
            service.at("spec/type").as_string(),
            text_or(service.at("spec/clusterIP"), "<none>"),
            external_address(service),
            service_ports(service["spec"]),
            age_of(service, now),
            map_text(service.at("spec/selector"))};
  }
  const std::vector<std::string>& selectable_fields() const override {
    static const std::vector<std::string> fields = {"spec.clusterIP", "spec.type"};
    return fields;
  }

 private:
  static void check_ports(const Json::Array& ports, Causes& causes) {
    std::set<std::string> names;
    std::set<std::string> numbers;
    for (std::size_t i = 0; i < ports.size(); ++i) {
      const std::string where = indexed("spec.ports", i);
      const std::string& name = ports[i]["name"].as_string();
      if (name.empty()) {
        if (ports.size() > 1) causes.push_back(required(where + ".name"));
      } else if (std::string wrong = meta::check_dns_label(name); !wrong.empty()) {
        causes.push_back(invalid(where + ".name", name, wrong));
      } else if (!names.insert(name).second) {
        causes.push_back(duplicate(where + ".name", name));
      }
      check_port(ports[i]["port"], where + ".port", causes);
      if (ports[i]["targetPort"].is_integer())
        check_port(ports[i]["targetPort"], where + ".targetPort", causes);
      const std::string& protocol = ports[i]["protocol"].as_string();
      if (protocol != "TCP" && protocol != "UDP" && protocol != "SCTP") {
        causes.push_back(not_supported(where + ".protocol", protocol, {"SCTP", "TCP", "UDP"}));
      }
      if (!numbers.insert(protocol + codec::write_json(ports[i]["port"])).second) {
        causes.push_back(
            duplicate(where, Json::object({{"port", ports[i]["port"]}, {"protocol", protocol}})));
      }
    }
  }
};

class EndpointsKind : public CoreKind {
 public:
  EndpointsKind()
      : CoreKind({.info = {.resource = {"", "v1", "Endpoints", "endpoints", true},
                           .singular = "endpoints",
                           .list_kind = "EndpointsList",
                           .short_names = {"ep"},
                           .create_on_update = true}}) {}

  Causes validate_create(const Json& endpoints) const override {
    Causes causes;
    const Json::Array& subsets = endpoints["subsets"].as_array();
    for (std::size_t i = 0; i < subsets.size(); ++i) {
      const std::string where = indexed("subsets", i);
      if (subsets[i]["addresses"].empty() && subsets[i]["notReadyAddresses"].empty()) {
        causes.push_back(required(where, "must specify `addresses` or `notReadyAddresses`"));
      }
      const Json::Array& ports = subsets[i]["ports"].as_array();
      for (std::size_t p = 0; p < ports.size(); ++p)
        check_port(ports[p]["port"], indexed(where + ".ports", p) + ".port", causes);
    }
    return causes;
  }

  const std::vector<Column>& columns() const override {
    static const std::vector<Column> columns = {
        name_column(), column("Endpoints", "Ready addresses and ports."), age_column()};
    return columns;
  }
  std::vector<Json> cells(const Json& endpoints, WallTime now) const override {
    constexpr std::size_t kShown = 3;
    std::vector<std::string> all;
    for (const Json& subset : endpoints["subsets"].as_array()) {
      for (const Json& address : subset["addresses"].as_array()) {
        const std::string& ip = address["ip"].as_string();
        if (subset["ports"].empty()) all.push_back(ip);
        for (const Json& port : subset["ports"].as_array()) {
          all.push_back((ip.find(':') == std::string::npos ? ip : "[" + ip + "]") + ":" +
                        std::to_string(port["port"].as_integer()));
        }
      }
    }
    std::string text;
    for (std::size_t i = 0; i < std::min(all.size(), kShown); ++i)
      text += (i == 0 ? "" : ",") + all[i];
    if (all.size() > kShown) text += " + " + std::to_string(all.size() - kShown) + " more...";
    return {endpoints.at("metadata/name"), text.empty() ? "<none>" : text, age_of(endpoints, now)};
  }
};

class EndpointSliceKind : public CoreKind {
 public:
  EndpointSliceKind()
      : CoreKind({.info = {.resource = {"discovery.k8s.io", "v1", "EndpointSlice", "endpointslices",
                                        true}},
                  .generation = Generation::kSpec}) {}

  Causes validate_create(const Json& slice) const override {
    Causes causes;
    const std::string& type = slice["addressType"].as_string();
    if (type.empty()) {
      causes.push_back(required("addressType"));
    } else if (type != "IPv4" && type != "IPv6" && type != "FQDN") {
      causes.push_back(not_supported("addressType", type, {"FQDN", "IPv4", "IPv6"}));
    }
    const Json::Array& endpoints = slice["endpoints"].as_array();
    for (std::size_t i = 0; i < endpoints.size(); ++i) {
      if (endpoints[i]["addresses"].empty())
        causes.push_back(
            required(indexed("endpoints", i) + ".addresses", "must contain at least 1 address"));
    }
    const Json::Array& ports = slice["ports"].as_array();
    for (std::size_t i = 0; i < ports.size(); ++i) {
      if (ports[i]["port"].is_integer())
        check_port(ports[i]["port"], indexed("ports", i) + ".port", causes);
    }
    return causes;
  }
  const std::vector<Column>& columns() const override {
    static const std::vector<Column> columns = {
        name_column(), column("AddressType", "IPv4, IPv6 or FQDN."),
        column("Ports", "Ports of each pod."), column("Endpoints", "Addresses of the pods."),
        age_column()};
    return columns;
  }
  std::vector<Json> cells(const Json& slice, WallTime now) const override {
    constexpr std::size_t kShown = 3;
    const auto joined = [&](const std::vector<std::string>& all) {
      std::string text;
      for (std::size_t i = 0; i < std::min(all.size(), kShown); ++i)
        text += (i == 0 ? "" : ",") + all[i];
      if (all.size() > kShown) text += " + " + std::to_string(all.size() - kShown) + " more...";
      return text;
    };
    std::vector<std::string> ports, addresses;
    for (const Json& port : slice["ports"].as_array())
      ports.push_back(std::to_string(port["port"].as_integer()));
    for (const Json& endpoint : slice["endpoints"].as_array()) {
      if (!endpoint["addresses"].empty())
        addresses.push_back(endpoint["addresses"].as_array().front().as_string());
    }
    return {slice.at("metadata/name"), slice["addressType"].as_string(),
            ports.empty() ? "<unset>" : joined(ports),
            addresses.empty() ? "<unset>" : joined(addresses), age_of(slice, now)};
  }
};

}  // namespace

KindPtr make_service() { return std::make_shared<ServiceKind>(); }
KindPtr make_endpoints() { return std::make_shared<EndpointsKind>(); }
KindPtr make_endpoint_slice() { return std::make_shared<EndpointSliceKind>(); }

}  // namespace varda::apiserver
