#include "codec/text.h"

#include <simdjson.h>

namespace varda::codec {

bool is_utf8(std::string_view bytes) { return simdjson::validate_utf8(bytes); }

}  // namespace varda::codec
