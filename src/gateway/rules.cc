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

/// True: the selector is exactly `field=node`. A second term could only narrow it, and servers may
/// read two terms differently.
bool selects_own(const RequestInfo& info, std::string_view field, const std::string& node) {
  if (!info.label_selector.empty()) return false;
  const auto selector = meta::FieldSelector::parse(info.field_selector);
  if (!selector.ok() || selector->terms().size() != 1) return false;
  const auto& term = selector->terms().front();
  return term.field == field && term.value == node && !term.negated;
}

bool cluster_scoped(std::string_view resource) {
  return resource == "edgenodes" || resource == "nodes";
}

}  // namespace

Result<Route> route(const std::string& node, const RequestInfo& info) {
  const Error refusal(Code::kForbidden, info.forbidden(node));
  const auto found = std::find_if(kRules.begin(), kRules.end(), [&](const Rule& rule) {
    return rule.group == info.group && rule.version == info.version &&
           rule.resource == info.resource && rule.subresource == info.subresource &&
           rule.verb == info.verb;
  });
  if (found == kRules.end()) return refusal;
  if (found->own_name && info.name != node) return refusal;
  if (found->route == Route::kListOwn) {
    const bool pods = info.resource == "pods";
    // No namespace: all objects of the node are one list.
    if (!info.ns.empty() || !selects_own(info, pods ? "spec.nodeName" : "metadata.name", node))
      return refusal;
    return found->route;
  }
  // A selector does nothing for a single object here, but might do something at another server.
  if (!info.field_selector.empty() || !info.label_selector.empty()) return refusal;
  if (cluster_scoped(info.resource) != info.ns.empty()) return refusal;
  if (info.verb == "create" && !info.name.empty()) return refusal;
  return found->route;
}

Status check_addresses(std::string_view kind, const Json& status, meta::Reporter reporter) {
  const auto problems = meta::address_problems(kind, status, reporter);
  if (problems.empty()) return {};
  const meta::AddressProblem& first = problems.front();
  return Error(Code::kForbidden,
               first.field + ": " + first.value.substr(0, 64) + " " + first.message);
}

}  // namespace varda::gateway
