#include "apiserver/internal/request_info.h"

#include "net/url.h"

namespace varda::apiserver {

namespace {

// Path segments, decoded one by one, so that an encoded slash stays inside its segment. A trailing
// slash adds no segment.
std::vector<std::string> segments_of(std::string_view path) {
  std::vector<std::string> out;
  std::size_t at = path.starts_with('/') ? 1 : 0;
  while (at < path.size()) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string_view piece = path.substr(at, end - at);
    auto decoded = net::percent_decode(piece);
    out.push_back(decoded.ok() ? std::move(decoded).value() : std::string(piece));
    at = end + 1;
  }
  return out;
}

}  // namespace

RequestInfo parse_path(std::string_view path) {
  RequestInfo info;
  info.path = path;
  std::vector<std::string> parts = segments_of(path);
  for (const std::string& part : parts) {
    if (part.empty()) {  // "//"
      info.core = parts[0] == "api";
      return info;
    }
  }
  if (parts.empty() || (parts[0] != "api" && parts[0] != "apis")) {
    info.area = RequestInfo::Area::kOther;
    return info;
  }
  info.core = parts[0] == "api";
  std::size_t next = 1;
  if (!info.core && next < parts.size()) info.group = parts[next++];
  if (next < parts.size()) info.version = parts[next++];
  if (next >= parts.size()) {
    info.area = RequestInfo::Area::kRoots;
    return info;
  }
  info.area = RequestInfo::Area::kResource;
  if (parts[next] == "watch" && next + 1 < parts.size()) {
    info.legacy_watch = true;
    ++next;
  }
  const std::size_t left = parts.size() - next;
  // A namespaced path, unless it names the namespace itself or one of its subresources.
  if (parts[next] == "namespaces" && left >= 3 &&
      !(left == 3 && (parts[next + 2] == "status" || parts[next + 2] == "finalize"))) {
    info.ns = parts[next + 1];
    next += 2;
  }
  info.resource = parts[next++];
  if (next < parts.size()) info.name = parts[next++];
  while (next < parts.size()) info.subresource.push_back(parts[next++]);
  return info;
}

}  // namespace varda::apiserver
