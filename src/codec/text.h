// UTF-8 text: checks, lengths, truncation, quotes. base/text.h has what needs only ASCII.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace varda::codec {

/// True for valid UTF-8 (RFC 3629: no surrogates, no overlong forms), as JSON and protobuf require.
bool is_utf8(std::string_view bytes);

/// Number of UTF-8 characters, as the length limits of OpenAPI count them.
std::size_t utf8_length(std::string_view text);

/// The first `bytes` of UTF-8 text, or fewer: never cuts a character.
std::string clipped(std::string_view text, std::size_t bytes);

/// A JSON string: in double quotes, with escapes.
std::string quote(std::string_view text);

}  // namespace varda::codec
