// Checks and truncation of UTF-8 text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace varda::codec {

/// True for valid UTF-8 (RFC 3629: no surrogates, no overlong forms), as JSON and protobuf require.
bool is_utf8(std::string_view bytes);

/// The first `bytes` of UTF-8 text, or fewer: never cuts a character.
std::string clipped(std::string_view text, std::size_t bytes);

}  // namespace varda::codec
