#include "schema/structural.h"

#include <algorithm>
#include <array>

#include "schema/pattern.h"
#include "schema/schema.h"

namespace varda::schema {

namespace {

enum class Level { kRoot, kField, kItem };

constexpr std::array<const char*, 6> kTypes = {"array",  "boolean", "integer",
                                               "number", "object",  "string"};
// JSON schema keywords that structural schemas forbid.
constexpr std::array<const char*, 6> kForbidden = {
    "$ref", "additionalItems", "definitions", "dependencies", "id", "patternProperties"};
// Keywords forbidden inside allOf, anyOf, oneOf or not: they belong to the enclosing schema.
constexpr std::array<const char*, 6> kNotInJunctor = {
    "additionalProperties", "default", "description", "nullable", "title", "type"};

bool flag(const Json& document, const char* name) { return document[name].as_bool(); }

class Checker {
 public:
  void check(const Json& document, const std::string& field, Level level) {
    if (!document.is_object()) return;
    check_shape(document, field, level);
    check_forbidden(document, field);
    check_lists(document, field);
    check_extensions(document, field);
    if (level == Level::kRoot || flag(document, "x-kubernetes-embedded-resource"))
      check_metadata(document, field);
    check_values(document, field);
    for (const Json::Member& member : document["properties"].as_object()) {
      check(member.second, properties(field, member.first), Level::kField);
    }
    if (document["items"].is_array()) {
      causes.push_back(
          forbidden_field(field + ".items", "items must be a schema object and not an array"));
    }
    check(document["items"], field + ".items", Level::kItem);
    check(document["additionalProperties"], field + ".additionalProperties", Level::kField);
    each_junctor(document, field, [&](const Json& part, const std::string& where) {
      check_junctor(part, document, where);
    });
  }

  Causes causes;

 private:
  static std::string properties(const std::string& field, const std::string& name) {
    return keyed(field + ".properties", name);
  }

  template <typename Visit>
  static void each_junctor(const Json& document, const std::string& field, const Visit& visit) {
    for (const char* name : {"allOf", "anyOf", "oneOf"}) {
      const Json::Array& parts = document[name].as_array();
      for (std::size_t i = 0; i < parts.size(); ++i)
        visit(parts[i], indexed(field + "." + name, i));
    }
    if (document["not"].is_object()) visit(document["not"], field + ".not");
  }

  void check_shape(const Json& document, const std::string& field, Level level) {
    const std::string& type = document["type"].as_string();
    if (!type.empty() && std::find(kTypes.begin(), kTypes.end(), type) == kTypes.end()) {
      causes.push_back(not_supported(field + ".type", type, {kTypes.begin(), kTypes.end()}));
      return;
    }
    const bool untyped = flag(document, "x-kubernetes-int-or-string") ||
                         flag(document, "x-kubernetes-preserve-unknown-fields");
    if (level == Level::kRoot) {
      if (type.empty()) {
        causes.push_back(required(field + ".type", "must not be empty at the root"));
      } else if (type != "object") {
        causes.push_back(invalid(field + ".type", type, "must be object at the root"));
      }
    } else if (type.empty() && !untyped) {
      const char* where = level == Level::kItem ? "must not be empty for specified array items"
                                                : "must not be empty for specified object fields";
      causes.push_back(required(field + ".type", where));
    }
    if (!type.empty() && flag(document, "x-kubernetes-int-or-string")) {
      causes.push_back(
          invalid(field + ".type", type, "must be empty if x-kubernetes-int-or-string is true"));
    }
    if (type == "array" && !document["items"].is_object())
      causes.push_back(required(field + ".items", "must be specified"));
    if (document.contains("items") && !type.empty() && type != "array") {
      causes.push_back(forbidden_field(field + ".items", "must be undefined for type " + type));
    }
  }

  void check_forbidden(const Json& document, const std::string& field) {
    for (const char* name : kForbidden) {
      if (document.contains(name))
        causes.push_back(
            forbidden_field(child(field, name), std::string(name) + " is not supported"));
    }
    if (flag(document, "uniqueItems")) {
      causes.push_back(forbidden_field(
          field + ".uniqueItems",
          "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"));
    }
    const Json* additional = document.find("additionalProperties");
    if (additional == nullptr || additional->is_null()) return;
    if (!document["properties"].empty() && (additional->is_object() || additional->as_bool())) {
      causes.push_back(forbidden_field(field + ".additionalProperties",
                                       "additionalProperties and properties are mutual exclusive"));
    } else if (additional->is_bool() && !additional->as_bool()) {
      causes.push_back(forbidden_field(field + ".additionalProperties",
                                       "additionalProperties cannot be set to false"));
    }
  }

  void check_lists(const Json& document, const std::string& field) {
    const Json* kind = document.find("x-kubernetes-list-type");
    const Json& keys = document["x-kubernetes-list-map-keys"];
    if (kind != nullptr && document["type"].as_string() != "array" &&
        !document["type"].as_string().empty()) {
      causes.push_back(invalid(field + ".type", document["type"],
                               "must be array if x-kubernetes-list-type is specified"));
    }
    if (kind == nullptr) {
      if (!keys.empty()) {
        causes.push_back(required(field + ".x-kubernetes-list-type",
                                  "must be map if x-kubernetes-list-map-keys is non-empty"));
      }
      return;
    }
    const std::string& name = kind->as_string();
    if (name != "atomic" && name != "set" && name != "map") {
      causes.push_back(
          not_supported(field + ".x-kubernetes-list-type", name, {"atomic", "set", "map"}));
      return;
    }
    if (name == "map") check_map_keys(document, keys, field);
  }

  void check_map_keys(const Json& document, const Json& keys, const std::string& field) {
    const std::string where = field + ".x-kubernetes-list-map-keys";
    if (keys.empty()) {
      causes.push_back(required(where, "must not be empty if x-kubernetes-list-type is map"));
      return;
    }
    const Json& item = document["items"];
    std::string dump = "[]string{";
    bool known = true;
    for (const Json& key : keys.as_array()) {
      if (dump.back() != '{') dump += ", ";
      dump += go_quote(key.as_string());
      const Json* property = item["properties"].find(key.as_string());
      known = known && property != nullptr;
      if (property == nullptr) continue;
      const auto& needed = item["required"].as_array();
      const bool is_required = std::find(needed.begin(), needed.end(), key) != needed.end();
      if (!is_required && !property->contains("default")) {
        causes.push_back(required(properties(field + ".items", key.as_string()) + ".default",
                                  "this property is in x-kubernetes-list-map-keys, so it must have "
                                  "a default or be a required property"));
      }
    }
    if (!known) {
      causes.push_back(
          {"FieldValueInvalid",
           "Invalid value: " + dump + "}: entries must all be names of item properties", where});
    }
  }

  void check_extensions(const Json& document, const std::string& field) {
    if (const Json* preserve = document.find("x-kubernetes-preserve-unknown-fields");
        preserve != nullptr && !preserve->as_bool()) {
      causes.push_back(invalid(field + ".x-kubernetes-preserve-unknown-fields", *preserve,
                               "must be true or undefined"));
    }
    if (flag(document, "x-kubernetes-embedded-resource")) {
      if (document["type"].as_string() != "object") {
        causes.push_back(invalid(field + ".type", document["type"],
                                 "must be object if x-kubernetes-embedded-resource is true"));
      }
      if (document["properties"].empty() &&
          !flag(document, "x-kubernetes-preserve-unknown-fields")) {
        causes.push_back(required(field + ".properties",
                                  "must not be empty if x-kubernetes-embedded-resource is true "
                                  "without x-kubernetes-preserve-unknown-fields"));
      }
    }
    const Json::Array& rules = document["x-kubernetes-validations"].as_array();
    for (std::size_t i = 0; i < rules.size(); ++i) {
      const std::string& rule = rules[i]["rule"].as_string();
      if (rule.find_first_not_of(" \t\n") == std::string::npos) {
        causes.push_back(required(indexed(field + ".x-kubernetes-validations", i) + ".rule",
                                  "rule is not specified"));
      }
    }
  }

  void check_metadata(const Json& document, const std::string& field) {
    const Json& metadata = document["properties"]["metadata"];
    if (!metadata.is_object()) return;
    const bool only_names = std::all_of(
        metadata["properties"].as_object().begin(), metadata["properties"].as_object().end(),
        [](const Json::Member& m) { return m.first == "name" || m.first == "generateName"; });
    if (!only_names) {
      causes.push_back(forbidden_field(properties(field, "metadata"),
                                       "must not specify anything other than name and "
                                       "generateName, but metadata is implicitly specified"));
    }
  }

  void check_values(const Json& document, const std::string& field) {
    if (const std::string& pattern = document["pattern"].as_string(); !pattern.empty()) {
      if (auto compiled = Pattern::compile(pattern); !compiled.ok()) {
        causes.push_back(invalid(
            field + ".pattern", pattern,
            "must be a valid regular expression, but isn't: " + compiled.error().message()));
      }
    }
    const Json* value = document.find("default");
    if (value == nullptr) return;
    // A default is validated together with its nested defaults.
    auto schema = compile(document);
    if (!schema.ok()) return;
    Json complete = *value;
    if (complete.is_null() && (*schema)->nullable) return;
    apply_defaults(**schema, complete);
    for (StatusCause& cause :
         validate(**schema, complete, {.old = nullptr, .field = field + ".default"}))
      causes.push_back(std::move(cause));
  }

  // A junctor may only restrict fields that the enclosing schema specifies.
  void check_junctor(const Json& part, const Json& around, const std::string& field) {
    if (!part.is_object()) return;
    const bool int_or_string = flag(around, "x-kubernetes-int-or-string");
    for (const char* name : kNotInJunctor) {
      const Json* value = part.find(name);
      if (value == nullptr || value->is_null()) continue;
      const bool allowed = std::string_view(name) == "type" && int_or_string;
      if (!allowed)
        causes.push_back(forbidden_field(child(field, name), "must be empty to be structural"));
    }
    check_values(part, field);
    for (const Json::Member& member : part["properties"].as_object()) {
      const Json* outside = around["properties"].find(member.first);
      if (outside == nullptr && !around["additionalProperties"].is_object() &&
          !flag(around, "x-kubernetes-preserve-unknown-fields")) {
        causes.push_back(required(properties(field, member.first),
                                  "because it is defined in " + properties(field, member.first)));
      }
      check_junctor(member.second, outside == nullptr ? Json() : *outside,
                    properties(field, member.first));
    }
    if (part["items"].is_object()) check_junctor(part["items"], around["items"], field + ".items");
    each_junctor(part, field, [&](const Json& inner, const std::string& where) {
      check_junctor(inner, around, where);
    });
  }
};

}  // namespace

Causes check_structural(const Json& document, const std::string& field) {
  Checker checker;
  checker.check(document, field, Level::kRoot);
  return std::move(checker.causes);
}

}  // namespace varda::schema
