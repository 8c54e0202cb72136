// Parses path and method of a request.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace varda::apiserver {

struct RequestInfo {
  enum class Area {
    kUnknown,   // no such path
    kOther,     // /healthz, /version, /openapi ...: see `path`
    kRoots,     // /api, /apis, /apis/GROUP, /apis/GROUP/VERSION, /api/v1: discovery
    kResource,  // an object or a collection
  };
  Area area = Area::kUnknown;
  std::string path;   // decoded, as sent
  bool core = false;  // below /api
  std::string group, version;
  std::string ns;                        // empty if the path has none
  std::string resource;                  // plural
  std::string name;                      // empty: the collection
  std::vector<std::string> subresource;  // "status", then any further segments
  bool legacy_watch = false;             // the old /watch/ prefix
};

/// Never fails; `path` is percent-encoded.
RequestInfo parse_path(std::string_view path);

}  // namespace varda::apiserver
