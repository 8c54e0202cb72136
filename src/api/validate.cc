#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <regex>
#include <set>

#include "api/schema.h"
#include "codec/text.h"
#include "meta/object.h"

namespace varda::api {

namespace {

using meta::StatusCause;

constexpr std::size_t kCausesMax = 64;

bool fits(Schema::Type type, const Json& value) {
  switch (type) {
    case Schema::Type::kString:
      return value.is_string();
    case Schema::Type::kInteger:
      return value.is_integer() ||
             (value.is_number() && std::floor(value.as_double()) == value.as_double() &&
              std::abs(value.as_double()) < 9007199254740992.0);  // 2^53
    case Schema::Type::kNumber:
      return value.is_number();
    case Schema::Type::kBoolean:
      return value.is_bool();
    case Schema::Type::kArray:
      return value.is_array();
    case Schema::Type::kObject:
      return value.is_object();
    case Schema::Type::kIntOrString:
      return value.is_integer() || value.is_string();
    case Schema::Type::kAny:
      return true;
  }
  return false;
}

// Caches matchers: making one is far slower than using it, and there are only a few dozen patterns.
bool matches(const std::string& text, const std::string& pattern) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<const std::regex>> made;
  const std::regex* matcher = nullptr;
  {
    const std::lock_guard lock(mutex);
    auto& found = made[pattern];
    if (!found) found = std::make_unique<const std::regex>(pattern);
    matcher = found.get();
  }
  return std::regex_search(text, *matcher);
}

enum class Depth { kEverything, kRulesOnly };

class Walk {
 public:
  explicit Walk(Depth depth) : depth_(depth) {}

  void visit(const Schema& schema, const Json& value, const std::string& path) {
    if (causes.size() >= kCausesMax) return;
    if (!fits(schema.type, value)) {
      const std::string type(codec::type_name(value.type()));
      add("FieldValueTypeInvalid", path,
          "Invalid value: \"" + type + "\": " + where(path) + " in body must be of type " +
              std::string(type_name(schema.type)) + ": \"" + type + "\"");
      return;
    }
    if (value.is_string()) check_string(schema, value.as_string(), path);
    if (value.is_number()) check_number(schema, value, path);
    if (value.is_array()) visit_items(schema, value, path);
    if (value.is_object()) visit_members(schema, value, path);
    for (const Rule& rule : schema.rules) {
      for (const Violation& found : rule.check(value)) {
        std::string field = path + found.field;
        if (path.empty() && !field.empty() && field.front() == '.') field.erase(0, 1);
        if (causes.size() < kCausesMax)
          causes.push_back({found.reason, found.message, std::move(field)});
      }
    }
  }

  std::vector<StatusCause> causes;

 private:
  static std::string where(const std::string& path) { return path.empty() ? "<nil>" : path; }

  void add(std::string reason, const std::string& path, std::string message) {
    if (depth_ == Depth::kEverything && causes.size() < kCausesMax)
      causes.push_back({std::move(reason), std::move(message), where(path)});
  }

  void check_string(const Schema& schema, const std::string& text, const std::string& path) {
    if (depth_ == Depth::kRulesOnly) return;
    const std::string shown = codec::write_json(Json(text));
    if (schema.length_max && codec::utf8_length(text) > *schema.length_max) {
      add("FieldValueTooLong", path,
          "Too long: may not be more than " + std::to_string(*schema.length_max) + " bytes");
      // The recursive matcher below gets only short texts.
      return;
    }
    if (schema.length_min && codec::utf8_length(text) < *schema.length_min) {
      add("FieldValueInvalid", path,
          "Invalid value: " + shown + ": " + path + " in body should be at least " +
              std::to_string(*schema.length_min) + " chars long");
    }
    if (!schema.pattern.empty() && !matches(text, schema.pattern)) {
      add("FieldValueInvalid", path,
          "Invalid value: " + shown + ": " + path + " in body should match '" + schema.pattern +
              "'");
    }
    if (schema.format == "date-time" && !meta::parse_time(text).ok()) {
      add("FieldValueTypeInvalid", path,
          "Invalid value: " + shown + ": " + path + " in body must be of type date-time: " + shown);
    }
    if (!schema.one_of.empty()) {
      std::string supported;
      for (const std::string& one : schema.one_of) {
        if (one == text) return;
        supported += (supported.empty() ? "\"" : ", \"") + one + "\"";
      }
      add("FieldValueNotSupported", path,
          "Unsupported value: " + shown + ": supported values: " + supported);
    }
  }

  // Compares as integers if possible: above 2^53 a double lacks integers.
  template <typename Than>
  static bool beyond(const Json& value, std::int64_t limit, Than than) {
    return value.is_integer() ? than(value.as_integer(), limit)
                              : than(value.as_double(), static_cast<double>(limit));
  }

  void check_number(const Schema& schema, const Json& value, const std::string& path) {
    const std::string start =
        "Invalid value: " + codec::write_json(value) + ": " + path + " in body should be ";
    if (schema.minimum && beyond(value, *schema.minimum, std::less<>())) {
      add("FieldValueInvalid", path,
          start + "greater than or equal to " + std::to_string(*schema.minimum));
    }
    if (schema.maximum && beyond(value, *schema.maximum, std::greater<>())) {
      add("FieldValueInvalid", path,
          start + "less than or equal to " + std::to_string(*schema.maximum));
    }
  }

  void visit_items(const Schema& schema, const Json& value, const std::string& path) {
    if (schema.items_max && value.size() > *schema.items_max) {
      add("FieldValueTooMany", path,
          "Too many: " + std::to_string(value.size()) + ": must have at most " +
              std::to_string(*schema.items_max) + " items");
      return;
    }
    if (schema.items_min && value.size() < *schema.items_min) {
      add("FieldValueInvalid", path,
          "Invalid value: " + std::to_string(value.size()) + ": " + path +
              " in body should have at least " + std::to_string(*schema.items_min) + " items");
    }
    std::set<std::string> seen;
    std::size_t index = 0;
    for (const Json& item : value.as_array()) {
      const std::string item_path = path + "[" + std::to_string(index++) + "]";
      if (schema.items) visit(*schema.items, item, item_path);
      if (schema.list_keys.empty()) continue;
      std::string key;  // in the form in which Go prints the map of keys
      for (const std::string& name : schema.list_keys) {
        key += (key.empty() ? "" : ", ") + codec::write_json(Json(name)) + ":" +
               codec::write_json(item[name]);
      }
      if (!seen.insert(key).second)
        add("FieldValueDuplicate", item_path,
            "Duplicate value: map[string]interface {}{" + key + "}");
    }
  }

  void visit_members(const Schema& schema, const Json& value, const std::string& path) {
    const std::string dot = path.empty() ? "" : path + ".";
    for (const Property& property : schema.properties) {
      const Json* member = value.find(property.name);
      if (member == nullptr || member->is_null()) {
        if (property.required) add("FieldValueRequired", dot + property.name, "Required value");
        continue;
      }
      visit(property.schema, *member, dot + property.name);
    }
    if (!schema.additional) return;
    if (schema.items_max && value.size() > *schema.items_max) {
      add("FieldValueTooMany", path,
          "Too many: " + std::to_string(value.size()) + ": must have at most " +
              std::to_string(*schema.items_max) + " items");
    }
    for (const auto& [name, member] : value.as_object()) {
      if (!member.is_null()) visit(*schema.additional, member, dot + name);
    }
  }

  Depth depth_;
};

}  // namespace

std::vector<StatusCause> validate(const Schema& schema, const Json& value, std::string_view path) {
  Walk walk(Depth::kEverything);
  walk.visit(schema, value, std::string(path));
  return std::move(walk.causes);
}

std::vector<StatusCause> validate_rules(const Schema& schema, const Json& value,
                                        std::string_view path) {
  Walk walk(Depth::kRulesOnly);
  walk.visit(schema, value, std::string(path));
  return std::move(walk.causes);
}

}  // namespace varda::api
