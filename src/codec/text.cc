#include "codec/text.h"

#include <simdjson.h>

namespace varda::codec {

bool is_utf8(std::string_view bytes) { return simdjson::validate_utf8(bytes); }

std::string clipped(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return std::string(text);
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  return std::string(text.substr(0, bytes));
}

}  // namespace varda::codec
