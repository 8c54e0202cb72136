// Schema: what a value may be, as data. The one source of the CRD's OpenAPI schema, of native validation and of the reference
// pages.
//
// It says what a Kubernetes structural schema can say, no more, so that both sides of every constraint mean the same.
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

namespace varda::api {

using codec::Json;

/// What a rule found wrong. `field` is relative to the value the rule stands at: ".targetVersion", ".manifest[1].sha256sum", "".
struct Violation {
  std::string reason;  // FieldValueRequired, FieldValueInvalid ...
  std::string field;
  std::string message;  // complete: "Required value: ..."
};

/// A constraint across fields, with both twins: CEL for a cluster's API server, a function for ours. Made by the templates of
/// rule.h.
struct Rule {
  std::string cel;                                                // over `self`
  std::string message;                                            // what must hold
  std::string reason;                                             // of the CEL twin
  std::string field_path;                                         // of the CEL twin: ".manifest"; empty: the value itself
  std::function<std::vector<Violation>(const Json& self)> check;  // looks only at members of the right type
};

struct Property;

struct Schema {
  enum class Type { kString, kInteger, kNumber, kBoolean, kArray, kObject, kAny, kIntOrString };

  Type type = Type::kAny;
  std::string description;
  std::string format;   // date-time, int32, int64
  std::string pattern;  // anchored by its author; the common ground of RE2 and ECMAScript
  std::vector<std::string> one_of;
  std::optional<std::int64_t> minimum, maximum;
  std::optional<std::size_t> length_min, length_max;  // strings; of map values when additional is set, see there
  std::optional<std::size_t> items_min, items_max;    // arrays; members of an object with `additional`
  std::optional<Json> initial;                        // the default
  std::vector<std::string> list_keys;                 // list map: items are unique by these members
  bool preserve_unknown = false;                      // members not named stay
  std::vector<Property> properties;                   // kObject, in the order people read them
  std::shared_ptr<Schema> items;                      // kArray
  std::shared_ptr<Schema> additional;                 // kObject as a map: what each value is
  std::vector<Rule> rules;

  const Property* find(std::string_view name) const;
};

struct Property {
  std::string name;
  Schema schema;
  bool required = false;
};

std::string_view type_name(Schema::Type type);  // "string", "integer" ...; "object" for kAny

/// openAPIV3Schema of a CRD version: structural, with x-kubernetes-list-type and x-kubernetes-validations.
Json to_openapi(const Schema& schema);

/// Everything wrong with `value`, in the words and with the reasons of the Kubernetes API; `path` is where it stands ("" or
/// "spec"). Includes the rules. Nothing when valid. Bounded: at most 64 causes.
std::vector<meta::StatusCause> validate(const Schema& schema, const Json& value, std::string_view path = "");
/// Only the rules: for a server that has checked the OpenAPI part already.
std::vector<meta::StatusCause> validate_rules(const Schema& schema, const Json& value, std::string_view path = "");

}  // namespace varda::api
