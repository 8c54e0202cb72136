#include "meta/node_writes.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace varda::meta {
namespace {

using codec::Json;

constexpr std::array<std::string_view, 4> kEventMembers{"count", "lastTimestamp", "message",
                                                        "series"};

/// A node may set labels that describe its machine, as agents send them. All other labels belong to
/// the cluster. This is stricter than Kubernetes' NodeRestriction, because selectors choose by any
/// label which nodes get files, models and pods.
bool may_label(const std::string& node, std::string_view key, const Json& value) {
  static constexpr std::array<std::string_view, 5> kAllowed{
      "kubernetes.io/os", "kubernetes.io/arch", "node-role.kubernetes.io/edge",
      "edgeai.io/layer",  "edgeai.io/runner",
  };
  // Selectors identify a node by this label.
  if (key == "kubernetes.io/hostname") return value.is_string() && value.as_string() == node;
  return std::find(kAllowed.begin(), kAllowed.end(), key) != kAllowed.end();
}

Error forbidden(std::string what) { return Error(Code::kForbidden, std::move(what)); }

Status check_object(const Json& body) {
  if (!body.is_object()) return Error(Code::kInvalid, "the body is not an object");
  const Json& metadata = body["metadata"];
  if (!metadata.is_null() && !metadata.is_object())
    return Error(Code::kInvalid, "metadata: must be an object");
  return {};
}

/// Checks that the value is absent or as expected.
Status check_text(const Json& value, std::string_view expected, const char* field) {
  if (value.is_null() || (value.is_string() && value.as_string() == expected)) return {};
  return Error(Code::kInvalid,
               std::string(field) + ": must be \"" + std::string(expected) + "\", as in the path");
}

}  // namespace

Result<Json> own_object(const std::string& node, const Resource& resource, const Json& body) {
  TRY_VOID(check_object(body));
  TRY_VOID(check_text(body["kind"], resource.kind, "kind"));
  TRY_VOID(check_text(body["apiVersion"], resource.api_version(), "apiVersion"));
  const Json& metadata = body["metadata"];
  if (metadata["name"].as_string() != node)
    return forbidden("metadata.name: a node creates the object with its own name only");
  Json allowed = Json::object({{"name", node}});
  for (const auto& [member, value] : metadata.as_object()) {
    if (member == "name" || member == "creationTimestamp") continue;
    if (member != "labels" && member != "annotations")
      return forbidden("metadata." + member + ": not a node's to set");
    for (const auto& [key, text] : value.as_object()) {
      if (member == "labels" && !may_label(node, key, text))
        return forbidden("metadata.labels." + key + ": not a node's to set");
    }
    allowed.set(member, value);
  }
  for (const auto& [member, value] : body.as_object()) {
    if (member == "kind" || member == "apiVersion" || member == "metadata") continue;
    if (member == "status") continue;  // ignored: a creation never sets the status
    if (member != "spec" || !value.empty()) return forbidden(member + ": not a node's to set");
  }
  return Json::object({{"apiVersion", resource.api_version()},
                       {"kind", resource.kind},
                       {"metadata", std::move(allowed)},
                       {"spec", Json::object()}});
}

Result<Json> own_status(const ObjectKey& key, const Json& body) {
  TRY_VOID(check_object(body));
  Json allowed = Json::object();
  for (const auto& [member, value] : body["metadata"].as_object()) {
    if (member == "name") {
      TRY_VOID(check_text(value, key.name, "metadata.name"));
    } else if (member == "namespace") {
      TRY_VOID(check_text(value, key.ns, "metadata.namespace"));
    } else if (member == "uid" || member == "resourceVersion") {
      if (!value.is_string())
        return Error(Code::kInvalid, "metadata." + member + ": must be a string");
      allowed.set(member, value);
    } else {
      return forbidden("metadata." + member + ": a node writes the status only");
    }
  }
  for (const auto& [member, value] : body.as_object()) {
    if (member == "kind" || member == "apiVersion" || member == "metadata" || member == "status")
      continue;
    return forbidden(member + ": a node writes the status only");
  }
  if (!body["status"].is_object()) return Error(Code::kInvalid, "status: must be an object");
  Json out = Json::object({{"status", body["status"]}});
  if (!allowed.empty()) out.set("metadata", std::move(allowed));
  return out;
}

Result<Json> own_event(const std::string& ns, const Json& body) {
  TRY_VOID(check_object(body));
  TRY_VOID(check_text(body["kind"], "Event", "kind"));
  TRY_VOID(check_text(body["apiVersion"], "v1", "apiVersion"));
  TRY_VOID(check_text(body["metadata"]["namespace"], ns, "metadata.namespace"));
  for (const auto& [member, value] : body["metadata"].as_object()) {
    if (member != "name" && member != "generateName" && member != "namespace" &&
        member != "creationTimestamp") {
      return forbidden("metadata." + member + ": not a node's to set");
    }
  }
  if (!body["involvedObject"].is_object())
    return Error(Code::kInvalid, "involvedObject: must be an object");
  if (body.contains("related")) return forbidden("related: a node may report its own objects only");
  // Events about cluster-scoped objects are in "default".
  const std::string& about = body["involvedObject"]["namespace"].as_string();
  if (about.empty() ? ns != "default" : ns != about) {
    return Error(Code::kInvalid, "involvedObject.namespace: must be that of the event");
  }
  return body;
}

Result<Json> event_patch(const Json& body) {
  TRY_VOID(check_object(body));
  for (const auto& [member, value] : body.as_object()) {
    if (std::find(kEventMembers.begin(), kEventMembers.end(), member) == kEventMembers.end()) {
      return forbidden(member + ": not a node's to change in an event");
    }
  }
  return body;
}

Status only_status_changed(const Json& old, const Json& object) {
  for (const char* member : {"labels", "annotations", "ownerReferences", "finalizers"}) {
    const Json& before = old["metadata"][member];
    const Json& now = object["metadata"][member];
    const bool same = now == before || (now.empty() && before.empty());
    if (!same)
      return forbidden("metadata." + std::string(member) + ": a node writes the status only");
  }
  return {};
}

namespace {

// Absent members and members that defaulting filled with empty values are equal.
bool is_blank(const Json& value) {
  return value.is_null() ||
         (value.is_string() ? value.as_string().empty()
                            : (value.is_object() || value.is_array()) && value.empty());
}

}  // namespace

Status only_event_counted(const Json& old, const Json& object) {
  TRY_VOID(only_status_changed(old, object));
  for (const Json* const one : {&old, &object}) {
    for (const auto& [member, value] : one->as_object()) {
      if (member == "metadata" || old[member] == object[member] ||
          (is_blank(old[member]) && is_blank(object[member])))
        continue;
      if (std::find(kEventMembers.begin(), kEventMembers.end(), member) == kEventMembers.end()) {
        return forbidden(member + ": not a node's to change in an event");
      }
    }
  }
  return {};
}

Involved Involved::of(const Json& event) {
  const Json& object = event["involvedObject"];
  return {object["kind"].as_string(), object["apiVersion"].as_string(),
          object["namespace"].as_string(), object["name"].as_string()};
}

bool Involved::is_node(const std::string& node) const {
  if (!ns.empty() || name != node) return false;
  return (kind == "Node" && api_version == "v1") ||
         (kind == "EdgeNode" && api_version == "edgeai.io/v1alpha1");
}

bool Involved::is_pod() const {
  return kind == "Pod" && api_version == "v1" && !ns.empty() && check_dns_subdomain(name).empty();
}

}  // namespace varda::meta
