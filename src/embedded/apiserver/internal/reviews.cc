// Answers the kinds of kinds/review.cc, for `kubectl auth can-i` and `kubectl auth whoami`.
#include <map>

#include "apiserver/internal/dialect.h"
#include "apiserver/internal/metadata.h"
#include "base/text.h"

namespace varda::apiserver {

namespace {

Json texts(const std::vector<std::string>& list) {
  Json out = Json::array();
  for (const std::string& text : list) out.push_back(text);
  return out;
}

Attributes attributes_of(const Json& spec) {
  Attributes what;
  const Json& resource = spec["resourceAttributes"];
  if (resource.is_null()) {
    what.verb = spec.at("nonResourceAttributes/verb").as_string();
    what.path = spec.at("nonResourceAttributes/path").as_string();
    return what;
  }
  what.is_resource = true;
  what.verb = resource["verb"].as_string();
  what.group = resource["group"].as_string();
  what.version = resource["version"].as_string();
  what.resource = resource["resource"].as_string();
  what.subresource = resource["subresource"].as_string();
  what.ns = resource["namespace"].as_string();
  what.name = resource["name"].as_string();
  return what;
}

}  // namespace

Authorizer::Objects Dialect::objects_of(const Call& call) const {
  return {
      .get = [this, &call](std::string_view group, std::string_view plural, std::string_view ns,
                           std::string_view name) -> std::optional<Json> {
        const KindPtr kind = call.kinds->find(group, plural);
        if (kind == nullptr) return std::nullopt;
        auto object = objects_.get(*kind, ns, name);
        if (!object.ok()) return std::nullopt;
        return std::move(object).value();
      },
      .each =
          [this, &call](std::string_view group, std::string_view plural,
                        const std::function<void(const Json&)>& each) {
            const KindPtr kind = call.kinds->find(group, plural);
            if (kind == nullptr) return;
            auto page = core_.store.list({.prefix = kind->storage_prefix()});
            if (!page.ok()) return;
            for (const store::Entry& entry : page->entries) {
              if (auto object = Objects::decode(*kind, entry); object.ok()) each(*object);
            }
          },
  };
}

bool Dialect::allowed(const Call& call, const Attributes& what) const {
  return core_.options.authorizer == nullptr ||
         core_.options.authorizer->allows(call.caller, what, objects_of(call));
}

// Checks resource by resource, because the authorizer exposes decisions and no rules.
Json Dialect::rules_of(const Call& call, const std::string& ns) const {
  const auto star = Json::array({"*"});
  const Json pages = Json::object(
      {{"verbs", Json::array({"get"})},
       {"nonResourceURLs", Json::array({"/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez",
                                        "/openapi", "/openapi/*", "/readyz", "/version"})}});
  Json resources = Json::array();
  Json paths = Json::array();
  Attributes everything{.verb = "*",
                        .group = "*",
                        .version = "*",
                        .resource = "*",
                        .subresource = "",
                        .ns = ns,
                        .is_resource = true};
  if (allowed(call, everything)) {
    resources.push_back(Json::object({{"verbs", star}, {"apiGroups", star}, {"resources", star}}));
    paths.push_back(Json::object({{"verbs", star}, {"nonResourceURLs", star}}));
    return Json::object({{"resourceRules", std::move(resources)},
                         {"nonResourceRules", std::move(paths)},
                         {"incomplete", false}});
  }
  for (const KindPtr& kind : call.kinds->all()) {
    const meta::Resource& resource = kind->resource();
    std::vector<std::string> verbs;
    for (const std::string& verb : kind->info().verbs) {
      const Attributes what{.verb = verb,
                            .group = resource.group,
                            .version = resource.version,
                            .resource = resource.plural,
                            .subresource = "",
                            .ns = resource.namespaced ? ns : "",
                            .is_resource = true};
      if (allowed(call, what)) verbs.push_back(verb);
    }
    if (verbs.empty()) continue;
    resources.push_back(Json::object({{"verbs", texts(verbs)},
                                      {"apiGroups", Json::array({resource.group})},
                                      {"resources", Json::array({resource.plural})}}));
  }
  if (allowed(call, Attributes{.verb = "get", .path = "/api"})) paths.push_back(pages);
  return Json::object(
      {{"resourceRules", std::move(resources)},
       {"nonResourceRules", std::move(paths)},
       {"incomplete", true},
       {"evaluationError",
        "rules that depend on the name or the content of an object are not listed"}});
}

Dialect::Reply Dialect::review(Call& call) {
  TRY(const Validation validation, parse_validation(call.query, "CreateOptions"));
  TRY(Json object,
      read_object(call.http, *call.kind, core_.options.limits, validation, &call.warnings));
  const meta::Resource& resource = call.kind->resource();
  if (auto causes = call.kind->validate_create(object); !causes.empty()) {
    return invalid(resource.group, resource.kind, "", std::move(causes));
  }
  const Json& spec = std::as_const(object)["spec"];
  Json status;
  if (resource.kind == "SelfSubjectAccessReview") {
    const bool may = allowed(call, attributes_of(spec));
    status = Json::object({{"allowed", may}});
    if (!may) status.set("reason", call.caller.name + " is not allowed to");
  } else if (resource.kind == "SelfSubjectRulesReview") {
    status = rules_of(call, spec["namespace"].as_string());
  } else {
    status = Json::object({{"userInfo", Json::object({{"username", call.caller.name},
                                                      {"groups", texts(call.caller.groups)}})}});
  }
  object["metadata"].set("creationTimestamp", nullptr);
  object.set("status", std::move(status));
  return answer_object(call, 201, std::move(object));
}

// `kubectl --as`: only a client that is allowed everything may impersonate.
Outcome<void> Dialect::impersonate(Call& call) const {
  Identity as;
  std::vector<Attributes> needed;
  const auto need = [&](const char* resource, std::string_view name) {
    needed.push_back({.verb = "impersonate",
                      .resource = resource,
                      .name = std::string(name),
                      .is_resource = true});
  };
  bool extra = false;
  for (const auto& [name, value] : call.http.headers.all()) {
    const std::string header = lower(name);
    if (!header.starts_with("impersonate-")) continue;
    if (header == "impersonate-user") {
      as.name = value;
      need("users", value);
    } else if (header == "impersonate-group") {
      as.groups.push_back(value);
      need("groups", value);
    } else {
      extra = true;  // a uid or extra field that no rule here reads
    }
  }
  if (as.name.empty()) {
    if (as.groups.empty() && !extra) return {};
    return bad_request(
        "groups, an id or extra cannot be impersonated without a user: Impersonate-User is "
        "missing");
  }
  for (const Attributes& what : needed) {
    if (allowed(call, what)) continue;
    return forbidden({"", "v1", "", what.resource, false}, what.name,
                     "User " + in_quotes(call.caller.name) + " cannot impersonate resource " +
                         in_quotes(what.resource) + " in API group \"\" at the cluster scope");
  }
  as.groups.push_back(as.name == "system:anonymous" ? "system:unauthenticated"
                                                    : "system:authenticated");
  call.caller = std::move(as);
  return {};
}

}  // namespace varda::apiserver
