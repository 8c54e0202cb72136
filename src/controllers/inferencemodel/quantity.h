// Amounts of resources as the Kubernetes API writes them.
#pragma once

#include <string>
#include <string_view>

namespace varda::controllers {

/// `text` as an API server gives it back: "1000m" is "1", "1024Mi" is "1Gi", "0.5" is "500m". What a server would change on its way
/// in would differ from what we want at every look, and be written again for ever. A text that is no such amount comes back as it
/// is.
std::string canonical_quantity(std::string_view text);

}  // namespace varda::controllers
