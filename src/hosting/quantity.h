// Resource amounts in the Kubernetes API's canonical form.
#pragma once

#include <string>
#include <string_view>

namespace varda::hosting {

/// `text` as an API server returns it: "1000m" is "1", "1024Mi" is "1Gi", "0.5" is "500m".
/// Otherwise the server's object would differ from the wanted one at every reconcile, and be
/// written forever. A text that is no such amount is returned unchanged.
std::string canonical_quantity(std::string_view text);

}  // namespace varda::hosting
