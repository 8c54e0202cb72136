#include "controllers/last_applied.h"

#include <utility>

#include "codec/json.h"
#include "runtime/writer.h"

namespace varda::controllers {

codec::Json last_applied(const meta::ObjectMeta& metadata) {
  const auto found = metadata.annotations.find(std::string(runtime::kLastApplied));
  if (found == metadata.annotations.end()) return {};
  auto applied = codec::parse_json(found->second);
  return applied.ok() && applied->is_object() ? std::move(*applied) : codec::Json();
}

codec::Json without_metadata(codec::Json object) {
  object.erase("metadata");
  return object;
}

}  // namespace varda::controllers
