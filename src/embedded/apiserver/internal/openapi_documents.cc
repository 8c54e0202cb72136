// OpenAPI documents and the caching of these by clients:
// https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-interface-definition
#include <ctime>

#include "apiserver/internal/dialect.h"
#include "apiserver/internal/openapi.h"
#include "apiserver/internal/tagged.h"

namespace varda::apiserver {

namespace {

constexpr std::string_view kIndex = "/openapi/v3";

// Hashes the inputs of the document, which is only made when a client reads it.
std::string hash_of_version(const KindSet::GroupVersion& version) {
  Json stamp = Json::array({std::string(kGitVersion)});
  for (const KindPtr& kind : version.kinds)
    stamp.push_back(Json::array({kind->resource().plural, kind->openapi_schema()}));
  return hash_of(codec::write_json(stamp));
}

std::string link_to(const std::string& name, const std::string& hash) {
  return std::string(kIndex) + "/" + name + "?hash=" + hash;
}

// HTTP date format: "Sun, 06 Nov 1994 08:49:37 GMT".
std::string http_date(WallTime when) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(when);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[64];
  return std::string(text, std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &parts));
}

// The document of the non-resource paths.
Json version_document() {
  const Json ok = Json::object({{"description", "OK"}});
  const Json get = Json::object({{"description", "Version of the server."},
                                 {"operationId", "getCodeVersion"},
                                 {"responses", Json::object({{"200", ok}})}});
  return Json::object(
      {{"openapi", "3.0.0"},
       {"info", Json::object({{"title", "Kubernetes"}, {"version", std::string(kGitVersion)}})},
       {"paths", Json::object({{"/version/", Json::object({{"get", get}})}})}});
}

}  // namespace

Dialect::Reply Dialect::openapi(Call& call) {
  const std::string& path = call.info.path;
  net::Response response;
  response.headers.add("Cache-Control", "no-cache, private");
  if (path == "/openapi/v2") {
    for (const MediaRange& range : parse_accept(call.http)) {
      if (!range.type.starts_with("application/com.github.")) continue;
      response.headers.add("Content-Type",
                           "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
      response.body = openapi_v2_protobuf(call.kinds->all());
      const std::string hash = hash_of(response.body);
      return tagged(call.http, std::move(response), hash);
    }
    response.headers.add("Content-Type", "application/json");
    response.body = codec::write_json(openapi_v2(call.kinds->all())) + "\n";
    const std::string hash = hash_of(response.body);
    return tagged(call.http, std::move(response), hash);
  }
  if (path == kIndex || path == "/openapi/v3/") {
    Json paths = Json::object();
    const auto add = [&](const std::string& name, const std::string& hash) {
      paths.set(name, Json::object({{"serverRelativeURL", link_to(name, hash)}}));
    };
    for (const auto& group : call.kinds->groups()) {
      for (const auto& version : group.versions) {
        add(group.name.empty() ? "api/" + version.version
                               : "apis/" + group.name + "/" + version.version,
            hash_of_version(version));
      }
    }
    add("version", hash_of(kGitVersion));
    response.headers.add("Content-Type", "text/plain; charset=utf-8");
    response.body = codec::write_json(Json::object({{"paths", std::move(paths)}}));
    const std::string hash = hash_of(response.body);
    return tagged(call.http, std::move(response), hash);
  }
  if (!path.starts_with("/openapi/v3/")) return text_response(404, "404 page not found\n");

  const std::string name = path.substr(kIndex.size() + 1);
  const RequestInfo inner = parse_path("/" + name);
  const KindSet::GroupVersion* version = nullptr;
  if (name != "version") {
    const bool known = inner.area == RequestInfo::Area::kRoots && !inner.version.empty();
    version = known ? call.kinds->group_version(inner.group, inner.version) : nullptr;
    if (version == nullptr) {
      response.status = 404;
      return response;
    }
  }
  const std::string hash = version == nullptr ? hash_of(kGitVersion) : hash_of_version(*version);
  // A client with the current ?hash may cache the document forever; other hashes are redirected.
  if (const std::string_view requested_hash = call.query.get("hash"); !requested_hash.empty()) {
    if (requested_hash != hash) {
      response.status = 301;
      response.headers.add("Location", link_to(name, hash));
      return response;
    }
    response.headers.set("Cache-Control", "public, immutable");
    response.headers.add("Expires", http_date(core_.clock.wall() + std::chrono::hours(24 * 365)));
    response.headers.add("Vary", "Accept");
  }
  response.headers.add("Content-Type", "application/json");
  response.body = codec::write_json(version == nullptr
                                        ? version_document()
                                        : openapi_v3(inner.group, inner.version, version->kinds)) +
                  "\n";
  return tagged(call.http, std::move(response), hash);
}

}  // namespace varda::apiserver
