#include "api/schema.h"

namespace varda::api {

namespace {

Json names(const std::vector<std::string>& values) {
  Json out = Json::array();
  for (const std::string& value : values) out.push_back(value);
  return out;
}

Json rules_to_openapi(const std::vector<Rule>& rules) {
  Json out = Json::array();
  for (const Rule& rule : rules) {
    if (rule.cel.empty()) continue;
    Json entry = Json::object({{"rule", rule.cel}, {"message", rule.message}});
    if (!rule.reason.empty()) entry.set("reason", rule.reason);
    if (!rule.field_path.empty()) entry.set("fieldPath", rule.field_path);
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace

const Property* Schema::find(std::string_view name) const {
  for (const Property& property : properties) {
    if (property.name == name) return &property;
  }
  return nullptr;
}

std::string_view type_name(Schema::Type type) {
  switch (type) {
    case Schema::Type::kString:
      return "string";
    case Schema::Type::kInteger:
      return "integer";
    case Schema::Type::kNumber:
      return "number";
    case Schema::Type::kBoolean:
      return "boolean";
    case Schema::Type::kArray:
      return "array";
    case Schema::Type::kIntOrString:
      return "integer or string";
    case Schema::Type::kObject:
    case Schema::Type::kAny:
      return "object";
  }
  return "object";
}

Json to_openapi(const Schema& schema, Describe describe) {
  Json out = Json::object();
  const Describe members =
      describe == Describe::kUnlessTerse && schema.terse ? Describe::kNone : describe;
  if (!schema.description.empty() && describe != Describe::kNone)
    out.set("description", schema.description);
  if (schema.type == Schema::Type::kIntOrString) {
    out.set("x-kubernetes-int-or-string", true);
  } else {
    out.set("type", type_name(schema.type));
  }
  if (!schema.format.empty()) out.set("format", schema.format);
  if (schema.initial) out.set("default", *schema.initial);
  if (!schema.one_of.empty()) out.set("enum", names(schema.one_of));
  if (!schema.pattern.empty()) out.set("pattern", schema.pattern);
  if (schema.length_min) out.set("minLength", static_cast<std::int64_t>(*schema.length_min));
  if (schema.length_max) out.set("maxLength", static_cast<std::int64_t>(*schema.length_max));
  if (schema.minimum) out.set("minimum", *schema.minimum);
  if (schema.maximum) out.set("maximum", *schema.maximum);
  const bool is_array = schema.type == Schema::Type::kArray;
  if (schema.items_min)
    out.set(is_array ? "minItems" : "minProperties", static_cast<std::int64_t>(*schema.items_min));
  if (schema.items_max)
    out.set(is_array ? "maxItems" : "maxProperties", static_cast<std::int64_t>(*schema.items_max));
  if (schema.preserve_unknown) out.set("x-kubernetes-preserve-unknown-fields", true);
  if (schema.atomic) out.set("x-kubernetes-map-type", "atomic");
  if (schema.items) {
    out.set("items", to_openapi(*schema.items, members));
    out.set("x-kubernetes-list-type", schema.list_keys.empty() ? "atomic" : "map");
    if (!schema.list_keys.empty()) out.set("x-kubernetes-list-map-keys", names(schema.list_keys));
  }
  if (schema.additional) out.set("additionalProperties", to_openapi(*schema.additional, members));
  if (!schema.properties.empty()) {
    Json properties = Json::object();
    Json required = Json::array();
    for (const Property& property : schema.properties) {
      properties.set(property.name, to_openapi(property.schema, members));
      if (property.required) required.push_back(property.name);
    }
    if (!required.empty()) out.set("required", std::move(required));
    out.set("properties", std::move(properties));
  }
  if (Json rules = rules_to_openapi(schema.rules); !rules.empty())
    out.set("x-kubernetes-validations", std::move(rules));
  return out;
}

}  // namespace varda::api
