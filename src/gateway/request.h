// Parses a request to the gateway into the nouns of Kubernetes' authorization. Pure.
//
// The parser never guesses. It refuses a path that could be read in two ways: encoded slashes,
// dots, empty or doubly encoded segments. It also refuses a repeated or unknown parameter. The
// server behind the gateway might read such a request in another way.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "net/http.h"

namespace varda::gateway {

struct RequestInfo {
  std::string verb;  // get list watch create update patch delete deletecollection
  std::string group, version, resource, subresource, ns, name;
  std::string field_selector, label_selector;
  std::string resource_version;  // of reads
  std::optional<int> timeout_seconds;
  bool bookmarks = false;

  /// `pods "web" is forbidden: User "system:node:edge0" cannot get resource "pods" in API group ""
  /// in the namespace "default"`: the wording of kube-apiserver.
  std::string forbidden(const std::string& node) const;
};

/// kInvalid: malformed, or ambiguous. kForbidden: a path of the API server that names no resource
/// (discovery and the like). kUnsupported: a method outside REST.
Result<RequestInfo> parse_request(const net::Request& request);

}  // namespace varda::gateway
