// Schema: a structural OpenAPI v3 schema, as a CustomResourceDefinition holds one, ready to prune, default and validate objects.
//
// check_structural() (structural.h) says what is wrong with a schema as a user wrote it; compile() takes one that has passed. CEL
// rules (x-kubernetes-validations) are kept in the document and not evaluated.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/schema/cause.h"
#include "apiserver/schema/pattern.h"
#include "base/result.h"
#include "codec/json.h"

namespace varda::apiserver::schema {

enum class ListType { kAtomic, kSet, kMap };

struct Schema;
using SchemaPtr = std::shared_ptr<const Schema>;

/// Immutable once compiled; thread-safe.
struct Schema {
  std::string type;  // "object", "array", "string", "integer", "number", "boolean"; "" where int_or_string or any
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
  std::optional<Json> minimum, maximum, multiple_of;  // numbers, as they stand in the document
  bool exclusive_minimum = false, exclusive_maximum = false;
  std::optional<std::int64_t> min_length, max_length, min_items, max_items, min_properties, max_properties;
  std::vector<SchemaPtr> all_of, any_of, one_of;
  SchemaPtr none_of;  // `not`

  ListType list_type = ListType::kAtomic;
  std::vector<std::string> list_map_keys;
};

/// kInvalid: a pattern does not compile, or the document is no schema at all.
Result<SchemaPtr> compile(const Json& document);

/// Removes what the schema does not know; appends the paths ("spec.list[0].x") in no order. The root's apiVersion, kind and
/// metadata, and those of embedded resources, stay.
void prune(const Schema& root, Json& object, std::vector<std::string>& unknown);

/// Fills in defaults, at any depth; a null that is not nullable goes, and takes the default where there is one.
void apply_defaults(const Schema& root, Json& object);

/// What a validation looks at.
struct Validation {
  const Json* old = nullptr;  // the same value before the write: what did not change cannot be wrong
  std::string field;          // where the value lies, for the causes: "" for a whole object, "status" for the subresource
};

/// Everything wrong with the value. Sentences name the path from the value on ("spec.size in body should be ...").
Causes validate(const Schema& schema, const Json& value, const Validation& how);

/// Uniqueness of sets and list maps, and apiVersion, kind and metadata of embedded resources.
Causes validate_lists(const Schema& schema, const Json& value, std::string_view field);
Causes validate_embedded(const Schema& schema, const Json& value, std::string_view field);

}  // namespace varda::apiserver::schema
