// Schema: a structural OpenAPI v3 schema of a CustomResourceDefinition, compiled to prune, default
// and validate objects.
//
// check_structural() (structural.h) checks a schema; compile() takes a checked one. CEL rules
// (x-kubernetes-validations) stay in the document and are not evaluated.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/json.h"
#include "schema/cause.h"
#include "schema/pattern.h"

namespace varda::schema {

enum class ListType { kAtomic, kSet, kMap };

struct Schema;
using SchemaPtr = std::shared_ptr<const Schema>;

/// Immutable once compiled; thread-safe.
struct Schema {
  std::string type;  // "object", "array", "string", "integer", "number", "boolean"; "" for
                     // int_or_string or any
  std::string format;
  bool nullable = false;
  bool int_or_string = false;
  bool preserve_unknown = false;
  bool embedded_resource = false;
  std::optional<Json> default_value;

  std::map<std::string, SchemaPtr, std::less<>> properties;
  SchemaPtr additional;         // additionalProperties: {...}
  bool additional_any = false;  // additionalProperties: true
  SchemaPtr items;

  std::vector<std::string> required;
  std::vector<Json> enumeration;
  std::optional<Pattern> pattern;
  std::optional<Json> minimum, maximum, multiple_of;  // numbers as written in the document
  bool exclusive_minimum = false, exclusive_maximum = false;
  std::optional<std::int64_t> min_length, max_length, min_items, max_items, min_properties,
      max_properties;
  std::vector<SchemaPtr> all_of, any_of, one_of;
  SchemaPtr none_of;  // `not`

  ListType list_type = ListType::kAtomic;
  std::vector<std::string> list_map_keys;
};

/// kInvalid: a pattern does not compile, or the document is not a schema.
Result<SchemaPtr> compile(const Json& document);

/// Removes unknown fields and appends the paths ("spec.list[0].x"), unordered. Keeps apiVersion,
/// kind and metadata of the root and of embedded resources.
void prune(const Schema& root, Json& object, std::vector<std::string>& unknown);

/// Applies defaults at any depth. Drops a null that is not nullable and applies its default, if
/// any.
void apply_defaults(const Schema& root, Json& object);

/// Options of validate().
struct Validation {
  const Json* old = nullptr;  // the value before the write; unchanged parts are not validated
  std::string
      field;  // path of the value, for causes: "" for an object, "status" for the subresource
};

/// Returns all errors. Messages name the path below the value ("spec.size in body should be ...").
Causes validate(const Schema& schema, const Json& value, const Validation& how);

/// Check uniqueness in sets and list maps; and apiVersion, kind and metadata of embedded resources.
Causes validate_lists(const Schema& schema, const Json& value, std::string_view field);
Causes validate_embedded(const Schema& schema, const Json& value, std::string_view field);

}  // namespace varda::schema
