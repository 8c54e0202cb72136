#include "schema/schema.h"

#include <algorithm>

#include "codec/reported_paths.h"

namespace varda::schema {

namespace {

std::optional<std::int64_t> limit(const Json& document, const char* name) {
  const Json* value = document.find(name);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  return value->as_integer();
}

std::optional<Json> number(const Json& document, const char* name) {
  const Json* value = document.find(name);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  return *value;
}

Result<std::vector<SchemaPtr>> compile_all(const Json& documents) {
  std::vector<SchemaPtr> schemas;
  for (const Json& document : documents.as_array()) {
    TRY(SchemaPtr schema, compile(document));
    schemas.push_back(std::move(schema));
  }
  return schemas;
}

Status read_limits(const Json& document, Schema& schema) {
  if (const Json* pattern = document.find("pattern");
      pattern != nullptr && !pattern->as_string().empty()) {
    TRY(schema.pattern, Pattern::compile(pattern->as_string()));
  }
  schema.minimum = number(document, "minimum");
  schema.maximum = number(document, "maximum");
  schema.multiple_of = number(document, "multipleOf");
  schema.exclusive_minimum = document["exclusiveMinimum"].as_bool();
  schema.exclusive_maximum = document["exclusiveMaximum"].as_bool();
  schema.min_length = limit(document, "minLength");
  schema.max_length = limit(document, "maxLength");
  schema.min_items = limit(document, "minItems");
  schema.max_items = limit(document, "maxItems");
  schema.min_properties = limit(document, "minProperties");
  schema.max_properties = limit(document, "maxProperties");
  return {};
}

std::vector<std::string> strings(const Json& list) {
  std::vector<std::string> texts;
  for (const Json& item : list.as_array()) texts.push_back(item.as_string());
  return texts;
}

}  // namespace

Result<SchemaPtr> compile(const Json& document) {
  if (!document.is_object()) return Error(Code::kInvalid, "a schema must be an object");
  auto schema = std::make_shared<Schema>();
  schema->type = document["type"].as_string();
  schema->format = document["format"].as_string();
  schema->nullable = document["nullable"].as_bool();
  schema->int_or_string = document["x-kubernetes-int-or-string"].as_bool();
  schema->preserve_unknown = document["x-kubernetes-preserve-unknown-fields"].as_bool();
  schema->embedded_resource = document["x-kubernetes-embedded-resource"].as_bool();
  if (const Json* value = document.find("default")) schema->default_value = *value;
  schema->required = strings(document["required"]);
  schema->enumeration = document["enum"].as_array();
  TRY_VOID(read_limits(document, *schema));

  for (const Json::Member& member : document["properties"].as_object()) {
    TRY(SchemaPtr property, compile(member.second).context(member.first));
    schema->properties.emplace(member.first, std::move(property));
  }
  if (const Json* additional = document.find("additionalProperties");
      additional != nullptr && !additional->is_null()) {
    if (additional->is_object()) {
      TRY(schema->additional, compile(*additional));
    } else {
      schema->additional_any = additional->as_bool();
    }
  }
  if (const Json* items = document.find("items"); items != nullptr && items->is_object()) {
    TRY(schema->items, compile(*items));
  }
  TRY(schema->all_of, compile_all(document["allOf"]));
  TRY(schema->any_of, compile_all(document["anyOf"]));
  TRY(schema->one_of, compile_all(document["oneOf"]));
  if (const Json* none = document.find("not"); none != nullptr && none->is_object()) {
    TRY(schema->none_of, compile(*none));
  }
  const std::string& list_type = document["x-kubernetes-list-type"].as_string();
  schema->list_type = list_type == "set"   ? ListType::kSet
                      : list_type == "map" ? ListType::kMap
                                           : ListType::kAtomic;
  schema->list_map_keys = strings(document["x-kubernetes-list-map-keys"]);
  return SchemaPtr(std::move(schema));
}

namespace {

enum class Position { kRoot, kInside };

bool is_resource_member(std::string_view name) {
  return name == "apiVersion" || name == "kind" || name == "metadata";
}

void prune_at(const Schema& schema, Json& value, const FieldPath& path, Position position,
              std::vector<std::string>& unknown) {
  if (value.is_array()) {
    if (schema.items == nullptr) return;
    Json::Array& items = value.array_items();
    for (std::size_t i = 0; i < items.size(); ++i)
      prune_at(*schema.items, items[i], FieldPath(path, i), Position::kInside, unknown);
    return;
  }
  if (!value.is_object()) return;
  const bool resource = position == Position::kRoot || schema.embedded_resource;
  Json::Object& members = value.object_members();
  std::erase_if(members, [&](Json::Member& member) {
    const FieldPath where(path, member.first);
    if (resource && is_resource_member(member.first)) return false;
    if (const auto property = schema.properties.find(member.first);
        property != schema.properties.end()) {
      prune_at(*property->second, member.second, where, Position::kInside, unknown);
      return false;
    }
    if (schema.additional != nullptr) {
      prune_at(*schema.additional, member.second, where, Position::kInside, unknown);
      return false;
    }
    if (schema.additional_any || schema.preserve_unknown) return false;
    codec::report_path(unknown, [&] { return where.str(); });
    return true;
  });
}

bool drops_null(const Schema& schema, const Json& value) {
  return value.is_null() && !schema.nullable;
}

}  // namespace

void prune(const Schema& root, Json& object, std::vector<std::string>& unknown) {
  prune_at(root, object, FieldPath(), Position::kRoot, unknown);
}

void apply_defaults(const Schema& schema, Json& value) {
  if (value.is_array()) {
    if (schema.items == nullptr) return;
    for (Json& item : value.array_items()) {
      if (item.is_null() && !schema.items->nullable && schema.items->default_value)
        item = *schema.items->default_value;
      apply_defaults(*schema.items, item);
    }
    return;
  }
  if (!value.is_object()) return;
  for (const auto& [name, property] : schema.properties) {
    Json* member = value.find(name);
    if (member != nullptr && drops_null(*property, *member)) {
      value.erase(name);
      member = nullptr;
    }
    if (member == nullptr && property->default_value) {
      value.set(name, *property->default_value);
      member = value.find(name);
    }
    if (member != nullptr) apply_defaults(*property, *member);
  }
  if (schema.additional != nullptr) {
    Json::Object& members = value.object_members();
    std::erase_if(members, [&](Json::Member& member) {
      if (schema.properties.contains(member.first)) return false;
      if (drops_null(*schema.additional, member.second)) {
        if (!schema.additional->default_value) return true;
        member.second = *schema.additional->default_value;
      }
      apply_defaults(*schema.additional, member.second);
      return false;
    });
  }
}

}  // namespace varda::schema
