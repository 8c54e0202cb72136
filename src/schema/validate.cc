#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "codec/text.h"
#include "meta/members.h"
#include "meta/object.h"
#include "schema/format.h"
#include "schema/schema.h"

namespace varda::schema {

namespace {

int compare(const Json& a, const Json& b) {
  if (a.is_integer() && b.is_integer())
    return a.as_integer() < b.as_integer() ? -1 : a.as_integer() > b.as_integer() ? 1 : 0;
  return a.as_double() < b.as_double() ? -1 : a.as_double() > b.as_double() ? 1 : 0;
}

bool is_multiple(const Json& value, const Json& factor) {
  if (value.is_integer() && factor.is_integer())
    return factor.as_integer() != 0 && value.as_integer() % factor.as_integer() == 0;
  const double quotient = value.as_double() / factor.as_double();
  return std::isfinite(quotient) && quotient == std::floor(quotient);
}

// A whole number is an integer in any notation, up to 2^53.
bool is_whole(const Json& value) {
  const double number = value.as_double();
  return value.is_integer() ||
         (number == std::floor(number) && std::abs(number) < 9007199254740992.0);
}

// The key members that identify an item of a list map.
Json identity_of(const Schema& schema, const Json& item) {
  Json identity = Json::object();
  for (const std::string& key : schema.list_map_keys) {
    if (const Json* part = item.find(key)) identity.set(key, *part);
  }
  return identity;
}

// The items of the old list, by key. Only items of list maps have an identity.
class Counterparts {
 public:
  Counterparts(const Schema& schema, const Json* old) : schema_(schema) {
    if (schema.list_type != ListType::kMap || old == nullptr) return;
    for (const Json& item : old->as_array())
      items_.emplace(go_value(identity_of(schema, item)), &item);
  }
  const Json* of(const Json& item) const {
    if (items_.empty()) return nullptr;
    const auto found = items_.find(go_value(identity_of(schema_, item)));
    return found == items_.end() ? nullptr : found->second;
  }

 private:
  const Schema& schema_;
  std::map<std::string, const Json*> items_;
};

class Validator {
 public:
  explicit Validator(const Validation& how) : base_(how.field) {}

  // `path` starts at the validated value. Unchanged values are skipped: once accepted, they do not
  // block other changes.
  void check(const Schema& schema, const Json& value, const Json* old, const std::string& path) {
    if (old != nullptr && *old == value) return;
    if (value.is_null()) {
      check_type(schema, value, path);
      if (!schema.nullable) check_enum(schema, value, path);
      return;
    }
    check_type(schema, value, path);
    check_combinations(schema, value, path);
    if (value.is_string()) check_string(schema, value, path);
    if (value.is_number()) check_number(schema, value, path);
    check_enum(schema, value, path);
    if (value.is_array()) check_array(schema, value, old, path);
    if (value.is_object()) check_object(schema, value, old, path);
  }

  Causes take() { return std::move(causes_); }

 private:
  std::string field(const std::string& path) const {
    if (path.empty()) return base_;
    return path.front() == '[' ? base_ + path : child(base_, path);
  }

  void fail(const std::string& path, const Json& value, const std::string& what) {
    causes_.push_back(invalid(field(path), value, path + " in body " + what));
  }

  void check_type(const Schema& schema, const Json& value, const std::string& path) {
    const auto mismatch = [&](std::string_view wanted) {
      const std::string actual(codec::type_name(value.type()));
      causes_.push_back(type_invalid(
          field(path), actual,
          path + " in body must be of type " + std::string(wanted) + ": \"" + actual + "\""));
    };
    if (value.is_null()) {
      if (schema.type.empty() || schema.nullable) return;
      return mismatch(schema.type);
    }
    if (schema.int_or_string) {
      if (!value.is_integer() && !value.is_string()) mismatch("integer,string");
      return;
    }
    if (schema.type.empty()) return;
    const std::string_view actual = codec::type_name(value.type());
    if (actual == schema.type || (actual == "integer" && schema.type == "number")) return;
    if (actual == "number" && schema.type == "integer" && is_whole(value)) return;
    if (value.is_string() || value.is_array() || schema.format.empty())
      return mismatch(schema.type);
    // With a format, kube-apiserver compares formats; the format of a number is its Go type.
    const std::string actual_format(value.is_integer()  ? "int64"
                                    : value.is_number() ? "float64"
                                    : value.is_bool()   ? ""
                                                        : actual);
    causes_.push_back(type_invalid(
        field(path), actual_format,
        path + " in body must be of type " + schema.format + ": \"" + actual_format + "\""));
  }

  void check_string(const Schema& schema, const Json& value, const std::string& path) {
    const std::string& text = value.as_string();
    if (schema.max_length &&
        codec::utf8_length(text) >
            static_cast<std::size_t>(std::max<std::int64_t>(0, *schema.max_length))) {
      causes_.push_back(too_long(field(path), *schema.max_length));
    } else if (schema.min_length &&
               codec::utf8_length(text) <
                   static_cast<std::size_t>(std::max<std::int64_t>(0, *schema.min_length))) {
      fail(path, value, "should be at least " + std::to_string(*schema.min_length) + " chars long");
    } else if (schema.pattern && !schema.pattern->matches(text)) {
      fail(path, value, "should match '" + schema.pattern->text() + "'");
    }
    if (!schema.format.empty() && !has_format(schema.format, text)) {
      causes_.push_back(
          type_invalid(field(path), value,
                       path + " in body must be of type " + schema.format + ": " + go_quote(text)));
    }
  }

  void check_number(const Schema& schema, const Json& value, const std::string& path) {
    if (schema.multiple_of && !is_multiple(value, *schema.multiple_of)) {
      fail(path, value, "should be a multiple of " + go_value(*schema.multiple_of));
    }
    if (schema.maximum) {
      const int order = compare(value, *schema.maximum);
      if (order > 0 || (order == 0 && schema.exclusive_maximum)) {
        fail(path, value,
             (schema.exclusive_maximum ? "should be less than "
                                       : "should be less than or equal to ") +
                 go_value(*schema.maximum));
      }
    }
    if (schema.minimum) {
      const int order = compare(value, *schema.minimum);
      if (order < 0 || (order == 0 && schema.exclusive_minimum)) {
        fail(path, value,
             (schema.exclusive_minimum ? "should be greater than "
                                       : "should be greater than or equal to ") +
                 go_value(*schema.minimum));
      }
    }
  }

  void check_enum(const Schema& schema, const Json& value, const std::string& path) {
    if (schema.enumeration.empty()) return;
    if (std::find(schema.enumeration.begin(), schema.enumeration.end(), value) !=
        schema.enumeration.end())
      return;
    std::vector<std::string> supported;
    for (const Json& item : schema.enumeration)
      supported.push_back(item.is_string() ? item.as_string() : codec::write_json(item));
    causes_.push_back(not_supported(field(path), value, supported));
  }

  void check_array(const Schema& schema, const Json& value, const Json* old,
                   const std::string& path) {
    const Json::Array& items = value.as_array();
    if (schema.items != nullptr) {
      const Counterparts before(schema, old);
      for (std::size_t i = 0; i < items.size(); ++i)
        check(*schema.items, items[i], before.of(items[i]), indexed(path, i));
    }
    if (schema.min_items &&
        items.size() < static_cast<std::size_t>(std::max<std::int64_t>(0, *schema.min_items))) {
      fail(path, static_cast<std::int64_t>(items.size()),
           "should have at least " + std::to_string(*schema.min_items) + " items");
    }
    if (schema.max_items &&
        items.size() > static_cast<std::size_t>(std::max<std::int64_t>(0, *schema.max_items))) {
      causes_.push_back(too_many(field(path), items.size(), *schema.max_items));
    }
  }

  void check_object(const Schema& schema, const Json& value, const Json* old,
                    const std::string& path) {
    const auto count = static_cast<std::int64_t>(value.size());
    if (schema.min_properties && count < *schema.min_properties) {
      return fail(path, count,
                  "should have at least " + std::to_string(*schema.min_properties) + " properties");
    }
    if (schema.max_properties && count > *schema.max_properties) {
      return causes_.push_back(too_many(field(path), value.size(), *schema.max_properties));
    }
    for (const std::string& name : schema.required) {
      if (!value.contains(name)) causes_.push_back(required(field(child(path, name))));
    }
    std::optional<meta::MemberIndex> before_write;
    if (old != nullptr) before_write.emplace(*old);
    for (const Json::Member& member : value.as_object()) {
      const Json* before = before_write ? before_write->find(member.first) : nullptr;
      const auto property = schema.properties.find(member.first);
      if (property != schema.properties.end()) {
        check(*property->second, member.second, before, child(path, member.first));
      } else if (schema.additional != nullptr) {
        check(*schema.additional, member.second, before, child(path, member.first));
      }
    }
  }

  // Number of matching schemas, and the errors of the closest failing one.
  struct Tried {
    std::size_t held = 0;
    Causes best;
  };
  Tried try_all(const std::vector<SchemaPtr>& schemas, const Json& value,
                const std::string& path) const {
    Tried tried;
    bool first = true;
    for (const SchemaPtr& schema : schemas) {
      Validator one({.old = nullptr, .field = base_});
      one.check(*schema, value, nullptr, path);
      if (one.causes_.empty()) {
        ++tried.held;
      } else if (first || one.causes_.size() < tried.best.size()) {
        tried.best = std::move(one.causes_);
        first = false;
      }
    }
    return tried;
  }

  // These messages contain the path and have no field.
  void fail_combination(const std::string& path, const std::string& what) {
    causes_.push_back(invalid(base_.empty() ? "<nil>" : base_, "", go_quote(path) + " " + what));
  }

  void check_combinations(const Schema& schema, const Json& value, const std::string& path) {
    const auto add = [&](Causes causes) {
      std::move(causes.begin(), causes.end(), std::back_inserter(causes_));
    };
    if (!schema.any_of.empty()) {
      Tried tried = try_all(schema.any_of, value, path);
      if (tried.held == 0) {
        fail_combination(path, "must validate at least one schema (anyOf)");
        add(std::move(tried.best));
      }
    }
    if (!schema.one_of.empty()) {
      Tried tried = try_all(schema.one_of, value, path);
      if (tried.held == 0) {
        fail_combination(path, "must validate one and only one schema (oneOf). Found none valid");
        add(std::move(tried.best));
      } else if (tried.held > 1) {
        fail_combination(path, "must validate one and only one schema (oneOf). Found " +
                                   std::to_string(tried.held) + " valid alternatives");
      }
    }
    if (!schema.all_of.empty()) {
      std::size_t held = 0;
      for (const SchemaPtr& part : schema.all_of) {
        Tried tried = try_all({part}, value, path);
        held += tried.held;
        add(std::move(tried.best));
      }
      if (held < schema.all_of.size()) {
        fail_combination(path, held == 0 ? "must validate all the schemas (allOf). None validated"
                                         : "must validate all the schemas (allOf)");
      }
    }
    if (schema.none_of != nullptr && try_all({schema.none_of}, value, path).held != 0) {
      fail_combination(path, "must not validate the schema (not)");
    }
  }

  const std::string base_;
  Causes causes_;
};

void check_unique(const Schema& schema, const Json& value, std::string_view field, Causes& causes) {
  const Json::Array& items = value.as_array();
  std::set<std::string> seen;
  for (std::size_t i = 0; i < items.size(); ++i) {
    Json identity;
    if (schema.list_type == ListType::kSet) {
      identity = items[i];
    } else {
      if (!items[i].is_object()) {
        causes.push_back(invalid(indexed(field, i), items[i],
                                 "must be an object for an array of list-type map"));
        continue;
      }
      identity = identity_of(schema, items[i]);
    }
    // The printed form has sorted members, so equal values have equal texts.
    if (!seen.insert(go_value(identity)).second)
      causes.push_back(duplicate(indexed(field, i), identity));
  }
}

// Calls visit(schema, value, field) for the value and all parts described by a schema.
template <typename Visit>
void walk(const Schema& schema, const Json& value, const std::string& field, const Visit& visit) {
  visit(schema, value, field);
  if (value.is_array() && schema.items != nullptr) {
    for (std::size_t i = 0; i < value.size(); ++i)
      walk(*schema.items, value.as_array()[i], indexed(field, i), visit);
  }
  for (const Json::Member& member : value.as_object()) {
    const auto property = schema.properties.find(member.first);
    if (property != schema.properties.end()) {
      walk(*property->second, member.second, child(field, member.first), visit);
    } else if (schema.additional != nullptr) {
      walk(*schema.additional, member.second, keyed(field, member.first), visit);
    }
  }
}

}  // namespace

Causes validate(const Schema& schema, const Json& value, const Validation& how) {
  Validator validator(how);
  validator.check(schema, value, how.old, "");
  return validator.take();
}

Causes validate_lists(const Schema& schema, const Json& value, std::string_view field) {
  Causes causes;
  walk(schema, value, std::string(field),
       [&](const Schema& at, const Json& list, const std::string& where) {
         if (list.is_array() && at.list_type != ListType::kAtomic)
           check_unique(at, list, where, causes);
       });
  return causes;
}

Causes validate_embedded(const Schema& schema, const Json& value, std::string_view field) {
  Causes causes;
  walk(schema, value, std::string(field),
       [&](const Schema& at, const Json& object, const std::string& where) {
         if (!at.embedded_resource || !object.is_object()) return;
         for (const char* name : {"apiVersion", "kind"}) {
           const Json& text = object[name];
           if (!text.is_null() && !text.is_string()) {
             causes.push_back(type_invalid(child(where, name), text, "must be a string"));
           } else if (text.as_string().empty()) {
             causes.push_back(required(child(where, name), "must not be empty"));
           }
         }
         const Json& metadata = object["metadata"];
         if (!metadata.is_null() && !metadata.is_object()) {
           causes.push_back(type_invalid(child(where, "metadata"), metadata, "must be an object"));
         } else if (auto read = meta::ObjectMeta::from_json(metadata);
                    !metadata.is_null() && !read.ok()) {
           causes.push_back(invalid(child(where, "metadata"), metadata, read.error().message()));
         }
       });
  return causes;
}

}  // namespace varda::schema
