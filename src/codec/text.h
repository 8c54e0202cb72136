// What bytes are as text.
#pragma once

#include <string_view>

namespace varda::codec {

/// Whether all of it is UTF-8 (RFC 3629: no surrogates, nothing longer than needed), as JSON and protobuf want their text.
bool is_utf8(std::string_view bytes);

}  // namespace varda::codec
