// What a request's path and method ask for.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace varda::apiserver {

struct RequestInfo {
  enum class Area {
    kUnknown,   // no such path
    kOther,     // /healthz, /version, /openapi ...: `path` says which
    kRoots,     // /api, /apis, /apis/GROUP, /apis/GROUP/VERSION, /api/v1: discovery
    kResource,  // an object or a collection
  };
  Area area = Area::kUnknown;
  std::string path;   // decoded, as sent
  bool core = false;  // below /api
  std::string group, version;
  std::string ns;                        // empty: none in the path
  std::string resource;                  // plural
  std::string name;                      // empty: the collection
  std::vector<std::string> subresource;  // "status"; further segments as they come
  bool legacy_watch = false;             // the old /watch/ prefix
};

/// Never fails; `path` is percent-encoded.
RequestInfo parse_path(std::string_view path);

}  // namespace varda::apiserver
