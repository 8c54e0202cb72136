// What a request to the gateway asks for, in the words of Kubernetes' authorization. Pure: bytes in, words out.
//
// Nothing here guesses. A path that could be read in two ways (encoded slashes, dots, empty or doubly encoded segments), a
// parameter that stands twice or that the gateway does not know: such a request is refused, since whoever is behind the gateway
// might read it in another way.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "net/http.h"

namespace varda::gateway {

struct Asked {
  std::string verb;  // get list watch create update patch delete deletecollection
  std::string group, version, resource, subresource, ns, name;
  std::string field_selector, label_selector;
  std::string resource_version;  // of reads
  std::optional<int> timeout_seconds;
  bool bookmarks = false;

  /// `pods "web" is forbidden: node "edge0" cannot get resource "pods" in API group "" in the namespace "default"`: as
  /// kube-apiserver puts it.
  std::string forbidden(const std::string& node) const;
};

/// kInvalid: malformed, or ambiguous. kForbidden: a path of the API server that names no resource (discovery and the like).
/// kUnsupported: a method that is none of REST's.
Result<Asked> parse_request(const net::Request& request);

}  // namespace varda::gateway
