#include <algorithm>

#include "apiserver/internal/dialect.h"
#include "apiserver/internal/tagged.h"

namespace varda::apiserver {

namespace {

Json strings(const std::vector<std::string>& values) {
  Json out = Json::array();
  for (const std::string& value : values) out.push_back(value);
  return out;
}

struct Sub {
  std::string name;
  std::vector<std::string> verbs;
  std::string group, version, kind;  // of the response; kind "": the resource's own
};

std::vector<Sub> subresources_of(const Kind& kind) {
  const KindInfo& info = kind.info();
  const std::vector<std::string> kReadWrite = {"get", "patch", "update"};
  std::vector<Sub> out;
  if (info.resource.group.empty() && info.resource.plural == "pods") {
    out.push_back({"binding", {"create"}, "", "", "Binding"});
    out.push_back({"eviction", {"create"}, "policy", "v1", "Eviction"});
    out.push_back({"log", {"get"}, "", "", ""});
  }
  if (info.resource.group.empty() && info.resource.plural == "namespaces")
    out.push_back({"finalize", {"update"}, "", "", ""});
  if (info.scale) out.push_back({"scale", kReadWrite, "autoscaling", "v1", "Scale"});
  if (info.status) out.push_back({"status", kReadWrite, "", "", ""});
  // Custom resources list status first.
  if (info.custom) std::reverse(out.begin(), out.end());
  return out;
}

Json plain_resource(const Kind& kind) {
  const KindInfo& info = kind.info();
  Json out = Json::object({{"name", info.resource.plural},
                           {"singularName", info.singular},
                           {"namespaced", info.resource.namespaced},
                           {"kind", info.resource.kind},
                           {"verbs", strings(info.verbs)}});
  if (!info.short_names.empty()) out.set("shortNames", strings(info.short_names));
  if (!info.categories.empty()) out.set("categories", strings(info.categories));
  if (!info.storage_hash.empty()) out.set("storageVersionHash", info.storage_hash);
  return out;
}

Json plain_subresource(const Kind& kind, const Sub& sub) {
  const KindInfo& info = kind.info();
  Json out = Json::object({{"name", info.resource.plural + "/" + sub.name},
                           {"singularName", ""},
                           {"namespaced", info.resource.namespaced},
                           {"kind", sub.kind.empty() ? info.resource.kind : sub.kind},
                           {"verbs", strings(sub.verbs)}});
  if (!sub.group.empty()) out.set("group", sub.group);
  if (!sub.version.empty()) out.set("version", sub.version);
  return out;
}

Json resource_list(std::string_view group, const KindSet::GroupVersion& version) {
  const std::string name =
      group.empty() ? version.version : std::string(group) + "/" + version.version;
  Json resources = Json::array();
  for (const KindPtr& kind : version.kinds) {
    resources.push_back(plain_resource(*kind));
    for (const Sub& sub : subresources_of(*kind))
      resources.push_back(plain_subresource(*kind, sub));
  }
  Json out = Json::object({{"kind", "APIResourceList"}});
  if (!group.empty()) out.set("apiVersion", "v1");
  out.set("groupVersion", name);
  out.set("resources", std::move(resources));
  return out;
}

Json group_of(const KindSet::Group& group) {
  Json versions = Json::array();
  for (const auto& version : group.versions) {
    versions.push_back(Json::object(
        {{"groupVersion", group.name + "/" + version.version}, {"version", version.version}}));
  }
  Json preferred = versions.as_array()[0];
  return Json::object({{"name", group.name},
                       {"versions", std::move(versions)},
                       {"preferredVersion", std::move(preferred)}});
}

Json response_kind(std::string_view group, std::string_view version, std::string_view kind) {
  return Json::object({{"group", group}, {"version", version}, {"kind", kind}});
}

Json aggregated_group(const KindSet::Group& group) {
  Json versions = Json::array();
  for (const auto& version : group.versions) {
    Json resources = Json::array();
    for (const KindPtr& kind : version.kinds) {
      const KindInfo& info = kind->info();
      // Built-in kinds omit group and version here, as in Kubernetes.
      const bool named = info.custom;
      const auto own = [&](const std::string& name) {
        return response_kind(named ? group.name : "", named ? version.version : "", name);
      };
      Json resource = Json::object({{"resource", info.resource.plural},
                                    {"responseKind", own(info.resource.kind)},
                                    {"scope", info.resource.namespaced ? "Namespaced" : "Cluster"},
                                    {"singularResource", info.singular},
                                    {"verbs", strings(info.verbs)}});
      if (!info.short_names.empty()) resource.set("shortNames", strings(info.short_names));
      if (!info.categories.empty()) resource.set("categories", strings(info.categories));
      Json subs = Json::array();
      for (const Sub& sub : subresources_of(*kind)) {
        subs.push_back(Json::object(
            {{"subresource", sub.name},
             {"responseKind", sub.kind.empty() ? own(info.resource.kind)
                                               : response_kind(sub.group, sub.version, sub.kind)},
             {"verbs", strings(sub.verbs)}}));
      }
      if (!subs.empty()) resource.set("subresources", std::move(subs));
      resources.push_back(std::move(resource));
    }
    versions.push_back(Json::object({{"version", version.version},
                                     {"resources", std::move(resources)},
                                     {"freshness", "Current"}}));
  }
  Json metadata = Json::object();
  if (!group.name.empty()) metadata.set("name", group.name);
  metadata.set("creationTimestamp", nullptr);
  return Json::object({{"metadata", std::move(metadata)}, {"versions", std::move(versions)}});
}

enum class Discovery { kPlain, kAggregated, kNone };

Discovery wanted_discovery(const net::Request& request) {
  const auto ranges = parse_accept(request);
  if (ranges.empty()) return Discovery::kPlain;
  for (const MediaRange& range : ranges) {
    const bool json = range.type == "application/json" || range.type == "application/*" ||
                      range.type == "*/*" || range.type == "application/yaml";
    if (!json) continue;
    if (!range.as) return Discovery::kPlain;
    if (*range.as == "APIGroupDiscoveryList" && range.group.value_or("") == "apidiscovery.k8s.io" &&
        range.version.value_or("") == "v2") {
      return Discovery::kAggregated;
    }
  }
  return Discovery::kNone;
}

}  // namespace

Dialect::Reply Dialect::discovery(Call& call) {
  const RequestInfo& info = call.info;
  const KindSet& kinds = *call.kinds;
  const bool roots = info.version.empty() && info.group.empty();
  if (!roots || info.core) {
    if (call.http.method != "GET" && call.http.method != "HEAD") return method_not_allowed();
  }
  const auto as = wanted_discovery(call.http);
  if (roots && as == Discovery::kAggregated) {
    Json items = Json::array();
    for (const auto& group : kinds.groups()) {
      if (group.name.empty() == info.core) items.push_back(aggregated_group(group));
    }
    const Json list = Json::object({{"kind", "APIGroupDiscoveryList"},
                                    {"apiVersion", "apidiscovery.k8s.io/v2"},
                                    {"metadata", Json::object()},
                                    {"items", std::move(items)}});
    net::Response response;
    response.headers.add("Content-Type",
                         "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
    response.headers.add("Cache-Control", "no-cache, private");
    response.headers.add("Vary", "Accept");
    response.body = codec::write_json(list) + "\n";
    const std::string hash = hash_of(response.body);
    return tagged(call.http, std::move(response), hash);
  }
  if (as == Discovery::kNone) return not_acceptable();
  call.how.output.format = error_format(call.http);
  call.how.output.pretty = call.query.find("pretty").has_value();
  if (info.core) {
    if (info.version.empty()) {
      return answer(call, 200,
                    Json::object({{"kind", "APIVersions"},
                                  {"versions", Json::array({"v1"})},
                                  {"serverAddressByClientCIDRs", Json::array()}}));
    }
    const auto* version = kinds.group_version("", info.version);
    if (version == nullptr) return resource_not_found();
    return answer(call, 200, resource_list("", *version));
  }
  if (info.group.empty()) {
    Json groups = Json::array();
    for (const auto& group : kinds.groups()) {
      if (!group.name.empty()) groups.push_back(group_of(group));
    }
    return answer(
        call, 200,
        Json::object(
            {{"kind", "APIGroupList"}, {"apiVersion", "v1"}, {"groups", std::move(groups)}}));
  }
  if (info.version.empty()) {
    for (const auto& group : kinds.groups()) {
      if (group.name != info.group) continue;
      Json object = group_of(group);
      object.set("kind", "APIGroup");
      object.set("apiVersion", "v1");
      return answer(call, 200, object);
    }
    return text_response(404, "404 page not found\n");
  }
  const auto* version = kinds.group_version(info.group, info.version);
  if (version == nullptr) return text_response(404, "404 page not found\n");
  return answer(call, 200, resource_list(info.group, *version));
}

Dialect::Reply Dialect::other(Call& call) {
  const std::string& path = call.info.path;
  if (path == "/healthz" || path == "/livez" || path == "/readyz") {
    if (path == "/readyz" && core_.stopping) return text_response(503, "stopping\n");
    return text_response(200, "ok");
  }
  if (path == "/version" || path == "/version/") {
    return answer(
        call, 200,
        Json::object({{"major", "1"},
                      {"minor", "33"},
                      {"gitVersion", kGitVersion},  // clients compare it with the client version
                      {"gitCommit", ""},
                      {"gitTreeState", ""},
                      {"buildDate", "1970-01-01T00:00:00Z"},
                      {"goVersion", ""},
                      {"compiler", "g++"},
                      {"platform", "linux/amd64"}}));
  }
  if (path == "/metrics" && core_.options.metrics != nullptr) {
    net::Response response = text_response(200, core_.options.metrics->text());
    response.headers.set("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
    return response;
  }
  if (path == "/") {
    Json paths = Json::array({"/api", "/api/v1", "/apis"});
    for (const auto& group : call.kinds->groups()) {
      if (group.name.empty()) continue;
      paths.push_back("/apis/" + group.name);
      for (const auto& version : group.versions)
        paths.push_back("/apis/" + group.name + "/" + version.version);
    }
    for (const char* more :
         {"/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"})
      paths.push_back(more);
    return answer(call, 200, Json::object({{"paths", std::move(paths)}}));
  }
  if (path.starts_with("/openapi/")) return openapi(call);
  return text_response(404, "404 page not found\n");
}

}  // namespace varda::apiserver
