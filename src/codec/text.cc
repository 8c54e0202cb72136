#include "codec/text.h"

#include <algorithm>
#include <simdjson.h>

#include "codec/json.h"

namespace varda::codec {

bool is_utf8(std::string_view bytes) { return simdjson::validate_utf8(bytes); }

std::size_t utf8_length(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string clipped(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return std::string(text);
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  return std::string(text.substr(0, bytes));
}

std::string quote(std::string_view text) { return write_json(Json(text)); }

}  // namespace varda::codec
