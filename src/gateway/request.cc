#include "gateway/request.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "meta/object.h"
#include "net/url.h"

namespace varda::gateway {
namespace {

constexpr std::size_t kTargetBytesMax = 4096;
constexpr std::size_t kSegmentsMax =
    9;  // apis/GROUP/VERSION/namespaces/NS/RESOURCE/NAME/SUBRESOURCE, plus one to detect excess
constexpr int kTimeoutSecondsMax = 3600;

// Parameters that Asked has, and parameters that do not change what is asked.
constexpr std::array<std::string_view, 12> kParameters{
    "watch",           "allowWatchBookmarks",  "fieldSelector",   "labelSelector",
    "resourceVersion", "resourceVersionMatch", "timeoutSeconds",  "limit",
    "timeout",         "fieldManager",         "fieldValidation", "pretty"};

Error invalid(std::string message) { return Error(Code::kInvalid, std::move(message)); }

Result<std::vector<std::string>> segments_of(std::string_view path) {
  std::vector<std::string> out;
  if (path.empty() || path.front() != '/') return invalid("the path does not begin with a slash");
  path.remove_prefix(1);
  while (true) {
    const std::size_t slash = path.find('/');
    auto segment = net::percent_decode(path.substr(0, slash));
    if (!segment.ok()) return invalid("the path has a bad escape");
    // Kubernetes' names need no escapes. So refusing special characters costs nothing.
    const bool plain = std::all_of(segment->begin(), segment->end(), [](unsigned char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '-' || c == '.' || c == '_' || c == ':';
    });
    if (segment->empty() || !plain || *segment == "." || *segment == "..")
      return invalid("the path has an unusual segment");
    out.push_back(std::move(*segment));
    if (out.size() > kSegmentsMax) return invalid("the path has too many segments");
    if (slash == std::string_view::npos) return out;
    path.remove_prefix(slash + 1);
  }
}

Result<bool> flag(std::string_view name, std::string_view value) {
  if (value == "true" || value == "1") return true;
  if (value == "false" || value == "0" || value.empty()) return false;
  return invalid("parameter " + std::string(name) + ": expected true or false");
}

Status read_parameters(std::string_view text, RequestInfo& info, bool& watch) {
  const net::Query query = net::Query::parse(text);
  std::set<std::string_view> seen;
  for (const auto& [name, value] : query.all()) {
    if (std::find(kParameters.begin(), kParameters.end(), name) == kParameters.end()) {
      return invalid("parameter \"" + name.substr(0, 100) + "\": is unknown");
    }
    if (!seen.insert(name).second) return invalid("parameter " + name + " occurs twice");
  }
  info.field_selector = query.get("fieldSelector");
  info.label_selector = query.get("labelSelector");
  info.resource_version = query.get("resourceVersion");
  TRY(watch, flag("watch", query.get("watch")));
  TRY(info.bookmarks, flag("allowWatchBookmarks", query.get("allowWatchBookmarks")));
  if (const auto seconds = query.find("timeoutSeconds"); seconds && !seconds->empty()) {
    const int number = parse_integer<int>(*seconds).value_or(-1);
    if (number < 0) return invalid("parameter timeoutSeconds: expected a number of seconds");
    info.timeout_seconds = std::min(number, kTimeoutSecondsMax);
  }
  return {};
}

Result<std::string> verb_of(const std::string& method, bool has_name, bool watch) {
  if (method == "GET" || method == "HEAD")
    return std::string(has_name ? "get" : watch ? "watch" : "list");
  if (method == "POST") return std::string("create");
  if (method == "PUT") return std::string("update");
  if (method == "PATCH") return std::string("patch");
  if (method == "DELETE") return std::string(has_name ? "delete" : "deletecollection");
  return Error(Code::kUnsupported, "the method must be GET, POST, PATCH or DELETE");
}

}  // namespace

Result<RequestInfo> parse_request(const net::Request& request) {
  if (request.target.size() > kTargetBytesMax) return invalid("the request's target is too long");
  if (request.target.find('#') != std::string::npos)
    return invalid("the request's target has a fragment");
  TRY(const std::vector<std::string> path, segments_of(request.path()));
  RequestInfo info;
  std::size_t at = 0;
  if (path[0] == "api" && path.size() >= 3) {
    info.version = path[1];
    at = 2;
  } else if (path[0] == "apis" && path.size() >= 4) {
    info.group = path[1];
    info.version = path[2];
    at = 3;
  } else {
    return Error(Code::kForbidden,
                 "path \"" + std::string(request.path().substr(0, 200)) + "\" is not supported");
  }
  if (path[at] == "namespaces" && path.size() > at + 2) {
    info.ns = path[at + 1];
    if (const std::string wrong = meta::check_dns_label(info.ns); !wrong.empty())
      return invalid("the namespace: " + wrong);
    at += 2;
  }
  info.resource = path[at++];
  if (at < path.size()) info.name = path[at++];
  if (at < path.size()) info.subresource = path[at++];
  if (at < path.size()) return invalid("the path has too many segments");
  if (!info.name.empty()) {
    if (const std::string wrong = meta::check_dns_subdomain(info.name); !wrong.empty())
      return invalid("the name: " + wrong);
  }
  bool watch = false;
  TRY_VOID(read_parameters(request.query(), info, watch));
  TRY(info.verb, verb_of(request.method, !info.name.empty(), watch));
  return info;
}

std::string RequestInfo::forbidden(const std::string& node) const {
  const std::string what = group.empty() ? resource : resource + "." + group;
  std::string out = what + (name.empty() ? "" : " \"" + name + "\"") +
                    " is forbidden: User \"system:node:" + node + "\" cannot " + verb +
                    " resource \"" + resource + (subresource.empty() ? "" : "/" + subresource) +
                    "\" in API group \"" + group + "\"";
  if (!ns.empty()) {
    out += " in the namespace \"" + ns + "\"";
  } else {
    out += " at the cluster scope";
  }
  return out;
}

}  // namespace varda::gateway
