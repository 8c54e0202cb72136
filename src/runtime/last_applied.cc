#include "runtime/last_applied.h"

#include <string>
#include <utility>

#include "runtime/writer.h"

namespace varda::runtime {

using codec::Json;

namespace {

Json parsed(const std::string& text) {
  auto applied = codec::parse_json(text);
  return applied.ok() && applied->is_object() ? std::move(*applied) : Json();
}

}  // namespace

Json last_applied(const meta::ObjectMeta& metadata) {
  const auto found = metadata.annotations.find(std::string(kLastApplied));
  return found == metadata.annotations.end() ? Json() : parsed(found->second);
}

Json last_applied(const Json& object) {
  const Json* text = object["metadata"]["annotations"].find(kLastApplied);
  return text != nullptr && text->is_string() ? parsed(text->as_string()) : Json();
}

Json without_metadata(Json object) {
  object.erase("metadata");
  return object;
}

}  // namespace varda::runtime
