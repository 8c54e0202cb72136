// Namespace and Node.
#include <algorithm>
#include <set>

#include "apiserver/kinds/core_kind.h"
#include "base/text.h"
#include "meta/object.h"

namespace varda::apiserver {

namespace {

constexpr const char* kNameLabel = "kubernetes.io/metadata.name";

class NamespaceKind : public CoreKind {
 public:
  NamespaceKind()
      : CoreKind({.info = {.resource = {"", "v1", "Namespace", "namespaces", false},
                           .short_names = {"ns"},
                           .verbs = {"create", "delete", "get", "list", "patch", "update", "watch"},
                           .status = true,
                           .delete_returns_object = true}}) {}

  std::string check_name(std::string_view name, bool prefix) const override {
    std::string text(name);
    if (prefix && !text.empty() && text.back() == '-') text.back() = 'a';
    return meta::check_dns_label(text);
  }

  void prepare_create(Json& object) const override {
    CoreKind::prepare_create(object);
    object.set("status", Json::object({{"phase", "Active"}}));
    Json& finalizers = object["spec"]["finalizers"];
    const Json kubernetes("kubernetes");
    const auto& present = finalizers.as_array();
    if (std::find(present.begin(), present.end(), kubernetes) == present.end())
      finalizers.push_back(kubernetes);
  }

  void apply_defaults(Json& object) const override {
    CoreKind::apply_defaults(object);
    // This label lets selectors find a namespace by its name.
    const Json name = object.at("metadata/name");
    if (!name.as_string().empty()) object.make("metadata/labels").set(kNameLabel, name);
  }

  void prepare_update(Json& object, const Json& old, Part part) const override {
    CoreKind::prepare_update(object, old, part);
    // Finalizers change only through the subresource "finalize".
    object["spec"].set("finalizers", old.at("spec/finalizers"));
    if (old.at("spec/finalizers").is_null()) object["spec"].erase("finalizers");
  }

  Causes validate_update(const Json& object, const Json& old, Part part) const override {
    Causes causes;
    if (part != Part::kStatus) return causes;
    const std::string& phase = object.at("status/phase").as_string();
    const bool deleting = !old.at("metadata/deletionTimestamp").is_null();
    if (!deleting && phase != "Active") {
      causes.push_back(
          invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty"));
    } else if (deleting && phase != "Terminating") {
      causes.push_back(invalid("status.Phase", phase,
                               "may only be 'Terminating' if `deletionTimestamp` is not empty"));
    }
    return causes;
  }

  const std::vector<Column>& columns() const override {
    static const std::vector<Column> columns = {
        name_column(), column("Status", "Active or Terminating."), age_column()};
    return columns;
  }
  std::vector<Json> cells(const Json& object, WallTime now) const override {
    return {object.at("metadata/name"), object.at("status/phase").as_string(), age_of(object, now)};
  }
  const std::vector<std::string>& selectable_fields() const override {
    static const std::vector<std::string> fields = {"status.phase"};
    return fields;
  }
};

std::string node_status(const Json& node) {
  std::string status = "Unknown";
  for (const Json& condition : node.at("status/conditions").as_array()) {
    if (condition["type"].as_string() == "Ready")
      status = condition["status"].as_string() == "True" ? "Ready" : "NotReady";
  }
  if (node.at("spec/unschedulable").as_bool()) status += ",SchedulingDisabled";
  return status;
}

std::string node_roles(const Json& node) {
  constexpr std::string_view kRole = "node-role.kubernetes.io/";
  std::set<std::string> roles;
  for (const Json::Member& label : node.at("metadata/labels").as_object()) {
    if (label.first.starts_with(kRole) && label.first.size() > kRole.size())
      roles.insert(label.first.substr(kRole.size()));
    if (label.first == "kubernetes.io/role" && !label.second.as_string().empty())
      roles.insert(label.second.as_string());
  }
  const std::string text = join(roles, ",");
  return text.empty() ? "<none>" : text;
}

std::string node_address(const Json& node, std::string_view type) {
  for (const Json& address : node.at("status/addresses").as_array()) {
    if (address["type"].as_string() == type) return address["address"].as_string();
  }
  return "<none>";
}

class NodeKind : public CoreKind {
 public:
  NodeKind()
      : CoreKind({.info = {.resource = {"", "v1", "Node", "nodes", false},
                           .short_names = {"no"},
                           .status = true}}) {}

  void prepare_create(Json& node) const override {
    // A node may report its status when it is created.
    Json status = node["status"];
    CoreKind::prepare_create(node);
    if (status.is_object()) node.set("status", std::move(status));
    // Nothing runs on a node before a controller has seen it ready.
    if (!node["spec"].is_object()) node.set("spec", Json::object());
    Json& taints = node["spec"]["taints"];
    const auto& present = taints.as_array();
    const bool tainted = std::any_of(present.begin(), present.end(), [](const Json& taint) {
      return taint["key"].as_string() == "node.kubernetes.io/not-ready";
    });
    if (!tainted)
      taints.push_back(
          Json::object({{"key", "node.kubernetes.io/not-ready"}, {"effect", "NoSchedule"}}));
  }

  void apply_defaults(Json& node) const override {
    CoreKind::apply_defaults(node);
    Json& status = node["status"];
    if (status.is_object() && !status.contains("allocatable") && status.contains("capacity")) {
      status.set("allocatable", Json(status["capacity"]));
    }
  }

  Causes validate_create(const Json& node) const override {
    Causes causes;
    const Json::Array& taints = node.at("spec/taints").as_array();
    std::set<std::string> seen;
    for (std::size_t i = 0; i < taints.size(); ++i) {
      const std::string where = indexed("spec.taints", i);
      const std::string& key = taints[i]["key"].as_string();
      const std::string& effect = taints[i]["effect"].as_string();
      if (std::string wrong = meta::check_label_key(key); !wrong.empty())
        causes.push_back(invalid(where + ".key", key, wrong));
      if (effect != "NoSchedule" && effect != "PreferNoSchedule" && effect != "NoExecute") {
        causes.push_back(not_supported(where + ".effect", effect,
                                       {"NoSchedule", "PreferNoSchedule", "NoExecute"}));
      }
      if (!seen.insert(key + ":" + effect).second) causes.push_back(duplicate(where, taints[i]));
    }
    append(causes, validate_reported_addresses("Node", nullptr, node));
    return causes;
  }

  Causes validate_update(const Json& node, const Json& old, Part part) const override {
    return part == Part::kStatus ? validate_reported_addresses("Node", old, node) : Causes();
  }

  const std::vector<Column>& columns() const override {
    static const std::vector<Column> columns = {
        name_column(),
        column("Status", "Readiness of the node, and whether new pods may be scheduled."),
        column("Roles", "Roles of the node, from its labels."),
        age_column(),
        column("Version", "Version of the agent on the node."),
        column("Internal-IP", "Address inside the cluster.", 1),
        column("External-IP", "Address outside the cluster.", 1),
        column("OS-Image", "Operating system of the node.", 1),
        column("Kernel-Version", "Kernel of the node.", 1),
        column("Container-Runtime", "Container runtime of the node.", 1),
    };
    return columns;
  }
  std::vector<Json> cells(const Json& node, WallTime now) const override {
    const Json& info = node.at("status/nodeInfo");
    return {node.at("metadata/name"),
            node_status(node),
            node_roles(node),
            age_of(node, now),
            info["kubeletVersion"].as_string(),
            node_address(node, "InternalIP"),
            node_address(node, "ExternalIP"),
            text_or(info["osImage"], "<unknown>"),
            text_or(info["kernelVersion"], "<unknown>"),
            text_or(info["containerRuntimeVersion"], "<unknown>")};
  }
  const std::vector<std::string>& selectable_fields() const override {
    static const std::vector<std::string> fields = {"spec.unschedulable"};
    return fields;
  }
  std::string field(const Json& node, std::string_view name) const override {
    if (name == "spec.unschedulable")
      return node.at("spec/unschedulable").as_bool() ? "true" : "false";
    return CoreKind::field(node, name);
  }
};

}  // namespace

KindPtr make_namespace() { return std::make_shared<NamespaceKind>(); }
KindPtr make_node() { return std::make_shared<NodeKind>(); }

}  // namespace varda::apiserver
