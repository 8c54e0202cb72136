#include "api/schema.h"
#include "schema/schema.h"

namespace varda::api {

namespace {

using meta::StatusCause;

constexpr std::size_t kCausesMax = 64;

// The server drops null members before it validates.
void drop_nulls(Json& value) {
  if (value.is_array()) {
    for (Json& item : value.array_items()) drop_nulls(item);
  } else if (value.is_object()) {
    std::erase_if(value.object_members(),
                  [](const Json::Member& member) { return member.second.is_null(); });
    for (Json::Member& member : value.object_members()) drop_nulls(member.second);
  }
}

// The schema refuses a value of another type, and rules do not look at it.
bool has_type(Schema::Type type, const Json& value) {
  if (type == Schema::Type::kObject) return value.is_object();
  if (type == Schema::Type::kArray) return value.is_array();
  return type != Schema::Type::kString || value.is_string();
}

// Checks the rules of the value and of all its parts.
void check_rules(const Schema& schema, const Json& value, const std::string& path,
                 std::vector<StatusCause>& causes) {
  if (!has_type(schema.type, value)) return;
  const std::string dot = path.empty() ? "" : path + ".";
  if (schema.items) {
    std::size_t index = 0;
    for (const Json& item : value.as_array())
      check_rules(*schema.items, item, path + "[" + std::to_string(index++) + "]", causes);
  }
  for (const Property& property : schema.properties) {
    const Json* member = value.find(property.name);
    if (member != nullptr && !member->is_null())
      check_rules(property.schema, *member, dot + property.name, causes);
  }
  if (schema.additional) {
    for (const auto& [name, member] : value.as_object()) {
      if (!member.is_null()) check_rules(*schema.additional, member, dot + name, causes);
    }
  }
  for (const Rule& rule : schema.rules) {
    for (const Violation& found : rule.check(value)) {
      std::string field = path + found.field;
      if (path.empty() && field.starts_with('.')) field.erase(0, 1);
      causes.push_back({found.reason, found.message, std::move(field)});
    }
  }
}

}  // namespace

Validator::Validator(const Schema& schema)
    : schema_(schema), compiled_(schema::compile(to_openapi(schema)).value()) {}

std::vector<StatusCause> Validator::validate(const Json& value, std::string_view path) const {
  Json checked = value;
  drop_nulls(checked);
  std::vector<StatusCause> causes =
      schema::validate(*compiled_, checked, {.old = nullptr, .field = std::string(path)});
  for (StatusCause& cause : schema::validate_lists(*compiled_, checked, path))
    causes.push_back(std::move(cause));
  check_rules(schema_, checked, std::string(path), causes);
  if (causes.size() > kCausesMax) causes.resize(kCausesMax);
  return causes;
}

std::vector<StatusCause> validate(const Schema& schema, const Json& value, std::string_view path) {
  return Validator(schema).validate(value, path);
}

std::vector<StatusCause> validate_rules(const Schema& schema, const Json& value,
                                        std::string_view path) {
  std::vector<StatusCause> causes;
  check_rules(schema, value, std::string(path), causes);
  if (causes.size() > kCausesMax) causes.resize(kCausesMax);
  return causes;
}

}  // namespace varda::api
