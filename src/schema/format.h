// Checks of the `format` of strings. Unknown formats accept everything, as in Kubernetes.
#pragma once

#include <string_view>

namespace varda::schema {

/// True if the text has the format; always true for unknown formats.
bool has_format(std::string_view format, std::string_view text);

}  // namespace varda::schema
