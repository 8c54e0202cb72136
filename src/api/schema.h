// Schema: constraints of a value, as data. The only source of the CRD's OpenAPI schema, of native
// validation and of the reference pages.
//
// A Schema can express only what a structural schema of Kubernetes can. So both forms of a
// constraint mean the same.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codec/json.h"
#include "meta/status.h"

namespace varda::schema {
struct Schema;
}  // namespace varda::schema

namespace varda::api {

using codec::Json;

/// A violation of a rule. `field` is relative to the value with the rule: ".targetVersion",
/// ".manifest[1].sha256sum", "".
struct Violation {
  std::string reason;  // FieldValueRequired, FieldValueInvalid ...
  std::string field;
  std::string message;  // complete: "Required value: ..."
};

/// A constraint across fields, as two twins: CEL for a cluster's API server, a function for ours.
/// The templates in rule.h make rules.
struct Rule {
  std::string cel;         // over `self`
  std::string message;     // the condition, for users
  std::string reason;      // of the CEL twin
  std::string field_path;  // of the CEL twin: ".manifest"; "": the value itself
  // Ignores members of the wrong type.
  std::function<std::vector<Violation>(const Json& self)> check;
};

struct Property;

struct Schema {
  enum class Type { kString, kInteger, kNumber, kBoolean, kArray, kObject, kAny, kIntOrString };

  Type type = Type::kAny;
  std::string description;
  std::string format;   // date-time, int32, int64
  std::string pattern;  // in RE2 syntax; not anchored implicitly
  std::vector<std::string> one_of;
  std::optional<std::int64_t> minimum, maximum;
  // Lengths of strings. For the values of a map, see `additional`.
  std::optional<std::size_t> length_min, length_max;
  // Items of an array, or members of an object with `additional`.
  std::optional<std::size_t> items_min, items_max;
  std::optional<Json> initial;         // the default
  std::vector<std::string> list_keys;  // list map: items are unique by these members
  bool preserve_unknown = false;       // the server keeps members without a schema
  // An object with one owner: the server records no owner of each member (managedFields). That
  // record of a long list is as long as the list, and half of the cost of a write.
  bool atomic = false;
  // The CRD leaves out the descriptions of members, because it has them elsewhere. An API server
  // keeps each copy in memory, several times.
  bool terse = false;
  std::vector<Property> properties;    // kObject, in reading order
  std::shared_ptr<Schema> items;       // kArray
  std::shared_ptr<Schema> additional;  // kObject as a map: schema of each value
  std::vector<Rule> rules;

  const Property* find(std::string_view name) const;
};

struct Property {
  std::string name;
  Schema schema;
  bool required = false;
};

std::string_view type_name(Schema::Type type);  // "string", "integer" ...; "object" for kAny

enum class Describe { kAll, kUnlessTerse, kNone };
/// openAPIV3Schema of a CRD version: structural, with x-kubernetes-list-type and
/// x-kubernetes-validations.
Json to_openapi(const Schema& schema, Describe describe = Describe::kAll);

/// A schema compiled for validation. Borrows the schema. Immutable; thread-safe.
class Validator {
 public:
  explicit Validator(const Schema& schema);
  /// Every cause, with the texts and reasons of the Kubernetes API. Includes the rules; ignores
  /// null members. `path` is the path of `value` ("" or "spec"). Empty if valid; at most 64 causes.
  std::vector<meta::StatusCause> validate(const Json& value, std::string_view path = "") const;

 private:
  const Schema& schema_;
  std::shared_ptr<const schema::Schema> compiled_;
};

/// Compiles the schema for this one value.
std::vector<meta::StatusCause> validate(const Schema& schema, const Json& value,
                                        std::string_view path = "");
/// Checks the rules only, for a server that has already checked the OpenAPI part.
std::vector<meta::StatusCause> validate_rules(const Schema& schema, const Json& value,
                                              std::string_view path = "");

}  // namespace varda::api
