// Validation of pod specs, and checks shared by several kinds.
#include <algorithm>
#include <set>

#include "apiserver/kinds/core_kind.h"
#include "meta/object.h"
#include "meta/quantity.h"

namespace varda::apiserver {

namespace {

// Checks an enumeration of the API.
void check_one_of(const Json& object, const char* member, const std::string& field,
                  const std::vector<std::string>& allowed, Causes& causes) {
  const std::string& value = object[member].as_string();
  if (value.empty() || std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  causes.push_back(not_supported(child(field, member), value, allowed));
}

void check_environment(const Json& container, const std::string& field, Causes& causes) {
  const Json::Array& variables = container["env"].as_array();
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const std::string where = indexed(field + ".env", i);
    const std::string& name = variables[i]["name"].as_string();
    if (name.empty()) {
      causes.push_back(required(where + ".name"));
    } else if (name.find('=') != std::string::npos) {
      causes.push_back(
          invalid(where + ".name", name, "environment variable names must not contain '='"));
    }
    const Json& from = variables[i]["valueFrom"];
    if (from.is_null()) continue;
    if (!variables[i]["value"].as_string().empty()) {
      causes.push_back(
          invalid(where + ".valueFrom", "", "may not be specified when `value` is not empty"));
    }
    if (from.size() != 1) {
      causes.push_back(invalid(where + ".valueFrom", "",
                               from.empty()
                                   ? "must specify one of: `fieldRef`, `resourceFieldRef`, "
                                     "`configMapKeyRef` or `secretKeyRef`"
                                   : "may not have more than one field specified at a time"));
    }
  }
}

void check_container_ports(const Json& container, const std::string& field,
                           std::set<std::string>& names, Causes& causes) {
  const Json::Array& ports = container["ports"].as_array();
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const std::string where = indexed(field + ".ports", i);
    if (ports[i]["containerPort"].as_integer() == 0) {
      causes.push_back(required(where + ".containerPort"));
    } else {
      check_port(ports[i]["containerPort"], where + ".containerPort", causes);
    }
    if (const Json* host = ports[i].find("hostPort"); host != nullptr)
      check_port(*host, where + ".hostPort", causes);
    check_one_of(ports[i], "protocol", where, {"SCTP", "TCP", "UDP"}, causes);
    const std::string& name = ports[i]["name"].as_string();
    if (name.empty()) continue;
    if (name.size() > 15)
      causes.push_back(invalid(where + ".name", name, "must be no more than 15 characters"));
    if (!names.insert(name).second) causes.push_back(duplicate(where + ".name", name));
  }
}

void check_mounts(const Json& container, const std::string& field,
                  const std::set<std::string>& volumes, Causes& causes) {
  const Json::Array& mounts = container["volumeMounts"].as_array();
  std::set<std::string> paths;
  for (std::size_t i = 0; i < mounts.size(); ++i) {
    const std::string where = indexed(field + ".volumeMounts", i);
    const std::string& name = mounts[i]["name"].as_string();
    const std::string& path = mounts[i]["mountPath"].as_string();
    if (name.empty()) {
      causes.push_back(required(where + ".name"));
    } else if (!volumes.contains(name)) {
      causes.push_back({"FieldValueNotFound", "Not found: " + go_quote(name), where + ".name"});
    }
    if (path.empty()) {
      causes.push_back(required(where + ".mountPath"));
    } else if (!paths.insert(path).second) {
      causes.push_back(invalid(where + ".mountPath", path, "must be unique"));
    }
  }
}

void check_probe(const Json& probe, const std::string& field, Causes& causes) {
  if (probe.is_null()) return;
  int handlers = 0;
  for (const char* handler : {"exec", "httpGet", "tcpSocket", "grpc"})
    handlers += probe[handler].is_null() ? 0 : 1;
  if (handlers == 0) causes.push_back(required(field, "must specify a handler type"));
  if (handlers > 1)
    causes.push_back(forbidden_field(field, "may not specify more than 1 handler type"));
  for (const char* member : {"initialDelaySeconds", "timeoutSeconds", "periodSeconds",
                             "successThreshold", "failureThreshold"}) {
    check_not_negative(probe, member, field, causes);
  }
}

// Rejects negative amounts, and requests above limits.
void check_resources(const Json& resources, const std::string& field, Causes& causes) {
  for (const char* list : {"limits", "requests"}) {
    for (const Json::Member& amount : resources[list].as_object()) {
      if (amount.second.as_string().starts_with("-")) {
        causes.push_back(invalid(keyed(child(field, list), amount.first), amount.second,
                                 "must be greater than or equal to 0"));
      }
    }
  }
  for (const Json::Member& request : resources["requests"].as_object()) {
    const std::string& limit = resources["limits"][request.first].as_string();
    if (!meta::exceeds(request.second.as_string(), limit)) continue;
    causes.push_back(
        invalid(child(field, "requests"), request.second,
                "must be less than or equal to " + request.first + " limit of " + limit));
  }
}

struct PodScope {
  std::set<std::string> volumes;
  std::set<std::string> container_names;
};

void check_containers(const Json& spec, const char* list, const std::string& field, PodScope& scope,
                      Causes& causes) {
  const Json::Array& containers = spec[list].as_array();
  std::set<std::string> port_names;
  for (std::size_t i = 0; i < containers.size(); ++i) {
    const Json& container = containers[i];
    const std::string where = indexed(child(field, list), i);
    const std::string& name = container["name"].as_string();
    if (name.empty()) {
      causes.push_back(required(where + ".name"));
    } else if (std::string wrong = meta::check_dns_label(name); !wrong.empty()) {
      causes.push_back(invalid(where + ".name", name, wrong));
    } else if (!scope.container_names.insert(name).second) {
      causes.push_back(duplicate(where + ".name", name));
    }
    const std::string& image = container["image"].as_string();
    // Kubernetes lets an admission plug-in set the image of a template; this server has none.
    if (image.empty()) causes.push_back(required(where + ".image"));
    if (!image.empty() && (image.front() == ' ' || image.back() == ' ')) {
      causes.push_back(
          invalid(where + ".image", image, "must not have leading or trailing whitespace"));
    }
    check_one_of(container, "imagePullPolicy", where, {"Always", "IfNotPresent", "Never"}, causes);
    check_one_of(container, "terminationMessagePolicy", where, {"FallbackToLogsOnError", "File"},
                 causes);
    check_environment(container, where, causes);
    port_names.clear();
    check_container_ports(container, where, port_names, causes);
    check_mounts(container, where, scope.volumes, causes);
    check_resources(container["resources"], where + ".resources", causes);
    for (const char* probe : {"livenessProbe", "readinessProbe", "startupProbe"})
      check_probe(container[probe], child(where, probe), causes);
  }
}

void check_volumes(const Json& spec, const std::string& field, PodScope& scope, Causes& causes) {
  const Json::Array& volumes = spec["volumes"].as_array();
  for (std::size_t i = 0; i < volumes.size(); ++i) {
    const std::string where = indexed(field + ".volumes", i);
    const std::string& name = volumes[i]["name"].as_string();
    if (name.empty()) {
      causes.push_back(required(where + ".name"));
    } else if (std::string wrong = meta::check_dns_label(name); !wrong.empty()) {
      causes.push_back(invalid(where + ".name", name, wrong));
    } else if (!scope.volumes.insert(name).second) {
      causes.push_back(duplicate(where + ".name", name));
    }
    for (std::size_t source = 2; source < volumes[i].size(); ++source) {
      const auto& members = volumes[i].as_object();
      const std::string& extra =
          members[source].first == "name" ? members[0].first : members[source].first;
      causes.push_back(
          forbidden_field(child(where, extra), "may not specify more than 1 volume type"));
    }
    if (const Json& path = volumes[i]["hostPath"]; !path.is_null()) {
      if (path["path"].as_string().empty()) causes.push_back(required(where + ".hostPath.path"));
      if (path["path"].as_string().find("..") != std::string::npos) {
        causes.push_back(invalid(where + ".hostPath.path", path["path"], "must not contain '..'"));
      }
    }
  }
}

}  // namespace

Causes validate_pod_spec(const Json& spec, const std::string& field) {
  Causes causes;
  PodScope scope;
  check_volumes(spec, field, scope, causes);
  if (spec["containers"].empty()) causes.push_back(required(field + ".containers"));
  check_containers(spec, "containers", field, scope, causes);
  check_containers(spec, "initContainers", field, scope, causes);
  check_one_of(spec, "restartPolicy", field, {"Always", "OnFailure", "Never"}, causes);
  check_one_of(spec, "dnsPolicy", field,
               {"ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"}, causes);
  check_not_negative(spec, "terminationGracePeriodSeconds", field, causes);
  append(causes, validate_labels(spec["nodeSelector"], field + ".nodeSelector"));
  if (const std::string& node = spec["nodeName"].as_string(); !node.empty()) {
    if (std::string wrong = meta::check_dns_subdomain(node); !wrong.empty())
      causes.push_back(invalid(field + ".nodeName", node, wrong));
  }
  if (const std::string& account = spec["serviceAccountName"].as_string(); !account.empty()) {
    if (std::string wrong = meta::check_dns_subdomain(account); !wrong.empty()) {
      causes.push_back(invalid(field + ".serviceAccountName", account, wrong));
    }
  }
  const Json::Array& tolerations = spec["tolerations"].as_array();
  for (std::size_t i = 0; i < tolerations.size(); ++i) {
    const std::string where = indexed(field + ".tolerations", i);
    check_one_of(tolerations[i], "operator", where, {"Equal", "Exists"}, causes);
    check_one_of(tolerations[i], "effect", where, {"NoSchedule", "PreferNoSchedule", "NoExecute"},
                 causes);
    if (tolerations[i]["key"].as_string().empty() &&
        tolerations[i]["operator"].as_string() != "Exists") {
      causes.push_back(invalid(where + ".operator", tolerations[i]["operator"].as_string(),
                               "operator must be Exists when `key` is empty, which means \"match "
                               "all values and all keys\""));
    }
  }
  return causes;
}

Causes validate_template(const Json& pod_template, const std::string& field) {
  Causes causes = validate_labels(pod_template.at("metadata/labels"), field + ".labels");
  append(causes, validate_pod_spec(pod_template["spec"], field + ".spec"));
  return causes;
}

Causes validate_labels(const Json& labels, const std::string& field) {
  Causes causes;
  for (const Json::Member& label : labels.as_object()) {
    if (std::string wrong = meta::check_label_key(label.first); !wrong.empty())
      causes.push_back(invalid(field, label.first, wrong));
    if (std::string wrong = meta::check_label_value(label.second.as_string()); !wrong.empty()) {
      causes.push_back(invalid(field, label.second, wrong));
    }
  }
  return causes;
}

Causes validate_label_selector(const Json& selector, const std::string& field) {
  Causes causes = validate_labels(selector["matchLabels"], field + ".matchLabels");
  const Json::Array& expressions = selector["matchExpressions"].as_array();
  for (std::size_t i = 0; i < expressions.size(); ++i) {
    const std::string where = indexed(field + ".matchExpressions", i);
    const std::string& op = expressions[i]["operator"].as_string();
    const bool values = !expressions[i]["values"].empty();
    if (op == "In" || op == "NotIn") {
      if (!values)
        causes.push_back(
            required(where + ".values", "must be specified when `operator` is 'In' or 'NotIn'"));
    } else if (op == "Exists" || op == "DoesNotExist") {
      if (values)
        causes.push_back(
            forbidden_field(where + ".values",
                            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
    } else {
      causes.push_back(invalid(where + ".operator", op, "not a valid selector operator"));
    }
    if (std::string wrong = meta::check_label_key(expressions[i]["key"].as_string());
        !wrong.empty()) {
      causes.push_back(invalid(where + ".key", expressions[i]["key"], wrong));
    }
  }
  return causes;
}

void check_not_negative(const Json& object, std::string_view member, const std::string& field,
                        Causes& causes) {
  const Json* value = object.find(member);
  if (value != nullptr && value->as_integer() < 0)
    causes.push_back(invalid(child(field, member), *value, "must be greater than or equal to 0"));
}

void check_port(const Json& port, const std::string& field, Causes& causes) {
  const std::int64_t number = port.as_integer();
  if (number < 1 || number > 65535)
    causes.push_back(invalid(field, port, "must be between 1 and 65535, inclusive"));
}

}  // namespace varda::apiserver
