#include "gateway/rules.h"

#include <algorithm>
#include <array>
#include <utility>

#include "meta/selector.h"

namespace varda::gateway {
namespace {

struct Rule {
  std::string_view group, version, resource, subresource, verb;
  bool own_name;  // the name must be the node's
  Route route;
};

constexpr std::string_view kEdge = "edgeai.io", kAlpha = "v1alpha1";
constexpr std::array kRules{
    Rule{kEdge, kAlpha, "edgenodes", "", "list", false, Route::kListOwn},
    Rule{kEdge, kAlpha, "edgenodes", "", "watch", false, Route::kListOwn},
    Rule{kEdge, kAlpha, "edgenodes", "", "get", true, Route::kReadSelf},
    Rule{kEdge, kAlpha, "edgenodes", "", "create", false, Route::kCreateSelf},
    Rule{kEdge, kAlpha, "edgenodes", "status", "patch", true, Route::kPatchSelf},
    Rule{"", "v1", "nodes", "", "get", true, Route::kReadSelf},
    Rule{"", "v1", "nodes", "", "create", false, Route::kCreateSelf},
    Rule{"", "v1", "nodes", "status", "patch", true, Route::kPatchSelf},
    Rule{"", "v1", "pods", "", "list", false, Route::kListOwn},
    Rule{"", "v1", "pods", "", "watch", false, Route::kListOwn},
    Rule{"", "v1", "pods", "", "get", false, Route::kReadPod},
    Rule{"", "v1", "pods", "status", "patch", false, Route::kPatchPod},
    Rule{"", "v1", "pods", "", "delete", false, Route::kDeletePod},
    Rule{"", "v1", "secrets", "", "get", false, Route::kReadSecret},
    Rule{"", "v1", "configmaps", "", "get", false, Route::kReadConfigMap},
    Rule{"", "v1", "events", "", "create", false, Route::kCreateEvent},
    Rule{"", "v1", "events", "", "patch", false, Route::kPatchEvent},
};

/// The selector is `field=node` and nothing else: a second term could only narrow it, and how others read two is not our concern.
bool selects_own(const Asked& asked, std::string_view field, const std::string& node) {
  if (!asked.label_selector.empty()) return false;
  const auto selector = meta::FieldSelector::parse(asked.field_selector);
  if (!selector.ok() || selector->terms().size() != 1) return false;
  const auto& term = selector->terms().front();
  return term.field == field && term.value == node && !term.negated;
}

bool cluster_scoped(std::string_view resource) { return resource == "edgenodes" || resource == "nodes"; }

/// Labels that a node gives itself say what kind of machine it is, as agents send them. All others are the cluster's to give, which
/// is more than Kubernetes' NodeRestriction keeps back: by any label a selector may choose who gets files, models and pods.
bool may_label(const std::string& node, std::string_view key, const Json& value) {
  static constexpr std::array<std::string_view, 5> kAllowed{
      "kubernetes.io/os", "kubernetes.io/arch", "node-role.kubernetes.io/edge", "edgeai.io/layer", "edgeai.io/runner",
  };
  // Selectors name a node by it.
  if (key == "kubernetes.io/hostname") return value.is_string() && value.as_string() == node;
  return std::find(kAllowed.begin(), kAllowed.end(), key) != kAllowed.end();
}

Error forbidden(std::string what) { return Error(Code::kForbidden, std::move(what)); }

Status check_object(const Json& body) {
  if (!body.is_object()) return Error(Code::kInvalid, "the body is no object");
  const Json& metadata = body["metadata"];
  if (!metadata.is_null() && !metadata.is_object()) return Error(Code::kInvalid, "metadata: must be an object");
  return {};
}

/// "" or the value expected.
Status check_said(const Json& value, std::string_view expected, const char* field) {
  if (value.is_null() || (value.is_string() && value.as_string() == expected)) return {};
  return Error(Code::kInvalid, std::string(field) + ": must be \"" + std::string(expected) + "\", as the path says");
}

}  // namespace

Result<Route> route(const std::string& node, const Asked& asked) {
  const Error refusal(Code::kForbidden, asked.forbidden(node));
  const auto found = std::find_if(kRules.begin(), kRules.end(), [&](const Rule& rule) {
    return rule.group == asked.group && rule.version == asked.version && rule.resource == asked.resource &&
           rule.subresource == asked.subresource && rule.verb == asked.verb;
  });
  if (found == kRules.end()) return refusal;
  if (found->own_name && asked.name != node) return refusal;
  if (found->route == Route::kListOwn) {
    const bool pods = asked.resource == "pods";
    // Without a namespace: all that the node has is one list.
    if (!asked.ns.empty() || !selects_own(asked, pods ? "spec.nodeName" : "metadata.name", node)) return refusal;
    return found->route;
  }
  // Of an object a selector says nothing, and what says nothing here may say something elsewhere.
  if (!asked.field_selector.empty() || !asked.label_selector.empty()) return refusal;
  if (cluster_scoped(asked.resource) != asked.ns.empty()) return refusal;
  if (asked.verb == "create" && !asked.name.empty()) return refusal;
  return found->route;
}

Result<Json> own_object(const std::string& node, const meta::Resource& resource, const Json& body) {
  TRY_VOID(check_object(body));
  TRY_VOID(check_said(body["kind"], resource.kind, "kind"));
  TRY_VOID(check_said(body["apiVersion"], resource.api_version(), "apiVersion"));
  const Json& metadata = body["metadata"];
  if (metadata["name"].as_string() != node) return forbidden("metadata.name: a node creates the object with its own name only");
  Json kept = Json::object({{"name", node}});
  for (const auto& [member, value] : metadata.as_object()) {
    if (member == "name" || member == "creationTimestamp") continue;
    if (member != "labels" && member != "annotations") return forbidden("metadata." + member + ": not a node's to set");
    for (const auto& [key, text] : value.as_object()) {
      if (member == "labels" && !may_label(node, key, text)) return forbidden("metadata.labels." + key + ": not a node's to set");
    }
    kept.set(member, value);
  }
  for (const auto& [member, value] : body.as_object()) {
    if (member == "kind" || member == "apiVersion" || member == "metadata") continue;
    if (member == "status") continue;  // a creation has none, as everywhere
    if (member != "spec" || !value.empty()) return forbidden(member + ": not a node's to set");
  }
  return Json::object(
      {{"apiVersion", resource.api_version()}, {"kind", resource.kind}, {"metadata", std::move(kept)}, {"spec", Json::object()}});
}

Result<Json> own_status(const meta::ObjectKey& key, const Json& body) {
  TRY_VOID(check_object(body));
  Json kept = Json::object();
  for (const auto& [member, value] : body["metadata"].as_object()) {
    if (member == "name") {
      TRY_VOID(check_said(value, key.name, "metadata.name"));
    } else if (member == "namespace") {
      TRY_VOID(check_said(value, key.ns, "metadata.namespace"));
    } else if (member == "uid" || member == "resourceVersion") {
      if (!value.is_string()) return Error(Code::kInvalid, "metadata." + member + ": must be a string");
      kept.set(member, value);
    } else {
      return forbidden("metadata." + member + ": a node writes the status only");
    }
  }
  for (const auto& [member, value] : body.as_object()) {
    if (member == "kind" || member == "apiVersion" || member == "metadata" || member == "status") continue;
    return forbidden(member + ": a node writes the status only");
  }
  if (!body["status"].is_object()) return Error(Code::kInvalid, "status: must be an object");
  Json out = Json::object({{"status", body["status"]}});
  if (!kept.empty()) out.set("metadata", std::move(kept));
  return out;
}

Result<Json> own_event(const std::string& ns, const Json& body) {
  TRY_VOID(check_object(body));
  TRY_VOID(check_said(body["kind"], "Event", "kind"));
  TRY_VOID(check_said(body["apiVersion"], "v1", "apiVersion"));
  TRY_VOID(check_said(body["metadata"]["namespace"], ns, "metadata.namespace"));
  for (const auto& [member, value] : body["metadata"].as_object()) {
    if (member != "name" && member != "generateName" && member != "namespace" && member != "creationTimestamp") {
      return forbidden("metadata." + member + ": not a node's to set");
    }
  }
  if (!body["involvedObject"].is_object()) return Error(Code::kInvalid, "involvedObject: must be an object");
  if (body.contains("related")) return forbidden("related: a node tells of its own objects only");
  // Events about what has no namespace lie in this one.
  const std::string& about = body["involvedObject"]["namespace"].as_string();
  if (about.empty() ? ns != "default" : ns != about) {
    return Error(Code::kInvalid, "involvedObject.namespace: must be that of the event");
  }
  return body;
}

Result<Json> event_patch(const Json& body) {
  TRY_VOID(check_object(body));
  for (const auto& [member, value] : body.as_object()) {
    static constexpr std::array<std::string_view, 4> kAllowed{"count", "lastTimestamp", "message", "series"};
    if (std::find(kAllowed.begin(), kAllowed.end(), member) == kAllowed.end()) {
      return forbidden(member + ": not a node's to change in an event");
    }
  }
  return body;
}

Involved Involved::of(const Json& event) {
  const Json& object = event["involvedObject"];
  return {object["kind"].as_string(), object["apiVersion"].as_string(), object["namespace"].as_string(),
          object["name"].as_string()};
}

}  // namespace varda::gateway
