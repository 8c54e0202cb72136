// What bytes are as text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace varda::codec {

/// Whether all of it is UTF-8 (RFC 3629: no surrogates, nothing longer than needed), as JSON and protobuf want their text.
bool is_utf8(std::string_view bytes);

/// The first `bytes` of UTF-8 text, or fewer: a character that does not fit whole is left out.
std::string clipped(std::string_view text, std::size_t bytes);

}  // namespace varda::codec
