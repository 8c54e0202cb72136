// Formats: what `format` of a string means. Unknown names accept everything, as in Kubernetes.
#pragma once

#include <string_view>

namespace varda::apiserver::schema {

/// Whether the text has the format. True for unknown formats.
bool has_format(std::string_view format, std::string_view text);

}  // namespace varda::apiserver::schema
