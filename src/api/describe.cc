#include "api/describe.h"

#include <algorithm>

namespace varda::api {

namespace {

ReadError must_be(std::string_view what) { return {"", "must be " + std::string(what)}; }

// Operations of scalars, and of other types without described members.
template <typename T>
const T& as(const void* value) {
  return *static_cast<const T*>(value);
}

Schema plain(Schema::Type type, std::string_view format = "") {
  Schema schema;
  schema.type = type;
  schema.format = std::string(format);
  return schema;
}

Schema text(std::size_t length_max, std::string_view description) {
  Schema schema = plain(Schema::Type::kString);
  schema.length_max = length_max;
  schema.description = std::string(description);
  return schema;
}

Schema condition_schema() {
  Schema schema = plain(Schema::Type::kObject);
  Schema status = plain(Schema::Type::kString);
  status.one_of = {"True", "False", "Unknown"};
  status.description = "Whether the condition holds.";
  Schema generation = plain(Schema::Type::kInteger, "int64");
  generation.description = "metadata.generation for which the condition was set.";
  Schema time = plain(Schema::Type::kString, "date-time");
  time.description = "Time of the last change of status.";
  schema.properties = {
      {"type", text(316, "Name of the condition."), true},
      {"status", status, true},
      {"reason", text(1024, "Reason as one CamelCase word."), false},
      {"message", text(32768, "Human-readable explanation."), false},
      {"observedGeneration", generation, false},
      {"lastTransitionTime", time, false},
  };
  return schema;
}

template <typename T>
ReadOutcome read_with(void* value, const Json& json, Result<T> (*from)(const Json&)) {
  auto parsed = from(json);
  if (!parsed.ok()) return ReadError{"", parsed.error().message()};
  *static_cast<T*>(value) = std::move(parsed).value();
  return {};
}

}  // namespace

template <>
const ValueOps& ops_of<std::string>() {
  static constexpr ValueOps ops{
      [] { return plain(Schema::Type::kString); },
      [](void* value, const Json& json) -> ReadOutcome {
        if (!json.is_string()) return must_be("a string");
        *static_cast<std::string*>(value) = json.as_string();
        return {};
      },
      [](const void* value) { return Json(as<std::string>(value)); },
      [](const void* value) { return as<std::string>(value).empty(); },
  };
  return ops;
}

template <>
const ValueOps& ops_of<std::int64_t>() {
  static constexpr ValueOps ops{
      [] { return plain(Schema::Type::kInteger); },
      [](void* value, const Json& json) -> ReadOutcome {
        if (!json.is_number() || static_cast<double>(json.as_integer()) != json.as_double())
          return must_be("an integer");
        *static_cast<std::int64_t*>(value) = json.as_integer();
        return {};
      },
      [](const void* value) { return Json(as<std::int64_t>(value)); },
      [](const void* value) { return as<std::int64_t>(value) == 0; },
  };
  return ops;
}

template <>
const ValueOps& ops_of<double>() {
  static constexpr ValueOps ops{
      [] { return plain(Schema::Type::kNumber); },
      [](void* value, const Json& json) -> ReadOutcome {
        if (!json.is_number()) return must_be("a number");
        *static_cast<double*>(value) = json.as_double();
        return {};
      },
      [](const void* value) { return Json(as<double>(value)); },
      [](const void* value) { return as<double>(value) == 0; },
  };
  return ops;
}

template <>
const ValueOps& ops_of<bool>() {
  static constexpr ValueOps ops{
      [] { return plain(Schema::Type::kBoolean); },
      [](void* value, const Json& json) -> ReadOutcome {
        if (!json.is_bool()) return must_be("a boolean");
        *static_cast<bool*>(value) = json.as_bool();
        return {};
      },
      [](const void* value) { return Json(as<bool>(value)); },
      [](const void* value) { return !as<bool>(value); },
  };
  return ops;
}

template <>
const ValueOps& ops_of<Json>() {
  static constexpr ValueOps ops{
      [] {
        Schema schema = plain(Schema::Type::kAny);
        schema.preserve_unknown = true;
        return schema;
      },
      [](void* value, const Json& json) -> ReadOutcome {
        *static_cast<Json*>(value) = json;
        return {};
      },
      [](const void* value) { return as<Json>(value); },
      [](const void* value) { return as<Json>(value).is_null(); },
  };
  return ops;
}

template <>
const ValueOps& ops_of<std::map<std::string, std::string>>() {
  using Map = std::map<std::string, std::string>;
  static constexpr ValueOps ops{
      [] {
        Schema schema = plain(Schema::Type::kObject);
        schema.additional = std::make_shared<Schema>(plain(Schema::Type::kString));
        return schema;
      },
      [](void* value, const Json& json) -> ReadOutcome {
        if (!json.is_object()) return must_be("an object");
        Map& map = *static_cast<Map*>(value);
        map.clear();
        for (const auto& [name, item] : json.as_object()) {
          if (!item.is_string()) return ReadError{"." + name, "must be a string"};
          map[name] = item.as_string();
        }
        return {};
      },
      [](const void* value) {
        Json out = Json::object();
        for (const auto& [name, item] : as<Map>(value)) out.set(name, item);
        return out;
      },
      [](const void* value) { return as<Map>(value).empty(); },
  };
  return ops;
}

template <>
const ValueOps& ops_of<std::map<std::string, std::int64_t>>() {
  using Map = std::map<std::string, std::int64_t>;
  static constexpr ValueOps ops{
      [] {
        Schema schema = plain(Schema::Type::kObject);
        schema.additional = std::make_shared<Schema>(plain(Schema::Type::kInteger, "int64"));
        return schema;
      },
      [](void* value, const Json& json) -> ReadOutcome {
        if (!json.is_object()) return must_be("an object");
        Map& map = *static_cast<Map*>(value);
        map.clear();
        for (const auto& [name, item] : json.as_object()) {
          if (auto failed = ops_of<std::int64_t>().read(&map[name], item)) {
            failed->path = "." + name + failed->path;
            return failed;
          }
        }
        return {};
      },
      [](const void* value) {
        Json out = Json::object();
        for (const auto& [name, item] : as<Map>(value)) out.set(name, item);
        return out;
      },
      [](const void* value) { return as<Map>(value).empty(); },
  };
  return ops;
}

template <>
const ValueOps& ops_of<meta::ObjectMeta>() {
  static constexpr ValueOps ops{
      [] { return plain(Schema::Type::kObject); },
      [](void* value, const Json& json) {
        return read_with<meta::ObjectMeta>(value, json, &meta::ObjectMeta::from_json);
      },
      [](const void* value) { return as<meta::ObjectMeta>(value).to_json(); },
      [](const void* value) { return as<meta::ObjectMeta>(value).to_json().empty(); },
  };
  return ops;
}

template <>
const ValueOps& ops_of<meta::Condition>() {
  static constexpr ValueOps ops{
      [] { return condition_schema(); },
      [](void* value, const Json& json) {
        return read_with<meta::Condition>(value, json, &meta::Condition::from_json);
      },
      [](const void* value) { return as<meta::Condition>(value).to_json(); },
      [](const void*) { return false; },
  };
  return ops;
}

ReadOutcome read_struct(const TypeInfo& info, void* object, const Json& json) {
  if (!json.is_object()) return must_be("an object");
  for (const Slot& slot : info.slots) {
    const Json* member = json.find(slot.name);
    if (member == nullptr || member->is_null()) continue;
    // The caller's object is mutable. locate() is const, so that one function serves reads and
    // writes.
    if (auto failed = slot.ops->read(const_cast<void*>(slot.locate(object)), *member)) {
      failed->path = "." + slot.name + failed->path;
      return failed;
    }
  }
  if (!info.unknown) return {};
  Json unknown;
  for (const auto& [name, value] : json.as_object()) {
    const bool known = std::any_of(info.slots.begin(), info.slots.end(),
                                   [&name = name](const Slot& slot) { return slot.name == name; });
    if (!known) unknown.set(name, value);
  }
  const_cast<Json&>(info.unknown(object)) = std::move(unknown);
  return {};
}

Json write_struct(const TypeInfo& info, const void* object) {
  Json out = Json::object();
  for (const Slot& slot : info.slots) {
    const void* value = slot.locate(object);
    if (slot.always || !slot.ops->zero(value)) out.set(slot.name, slot.ops->write(value));
  }
  if (info.unknown) {
    for (const auto& [name, value] : info.unknown(object).as_object()) {
      if (!out.contains(name)) out.set(name, value);
    }
  }
  return out;
}

FieldBuilder& FieldBuilder::required() {
  info_.schema.properties[index_].required = true;
  return always();
}

FieldBuilder& FieldBuilder::defaulted() {
  schema().initial = initial_;
  return always();
}

FieldBuilder& FieldBuilder::always() {
  info_.slots[index_].always = true;
  return *this;
}

FieldBuilder& FieldBuilder::one_of(std::vector<std::string> values) {
  schema().one_of = std::move(values);
  return *this;
}

FieldBuilder& FieldBuilder::pattern(std::string_view regex) {
  schema().pattern = std::string(regex);
  return *this;
}

FieldBuilder& FieldBuilder::format(std::string_view name) {
  schema().format = std::string(name);
  return *this;
}

FieldBuilder& FieldBuilder::length(std::size_t min, std::size_t max) {
  if (min > 0) schema().length_min = min;
  schema().length_max = max;
  return *this;
}

FieldBuilder& FieldBuilder::range(std::int64_t min, std::int64_t max) {
  schema().minimum = min;
  schema().maximum = max;
  return *this;
}

FieldBuilder& FieldBuilder::int_or_string() {
  schema().type = Schema::Type::kIntOrString;
  schema().preserve_unknown = false;
  return *this;
}

FieldBuilder& FieldBuilder::shaped(Schema shape) {
  std::string description = std::move(schema().description);
  schema() = std::move(shape);
  schema().description = std::move(description);
  return *this;
}

FieldBuilder& FieldBuilder::items_min(std::size_t min) {
  schema().items_min = min;
  return *this;
}

FieldBuilder& FieldBuilder::items_max(std::size_t max) {
  schema().items_max = max;
  return *this;
}

FieldBuilder& FieldBuilder::each_length(std::size_t min, std::size_t max) {
  Schema& each = schema().items ? *schema().items : *schema().additional;
  if (min > 0) each.length_min = min;
  each.length_max = max;
  return *this;
}

FieldBuilder& FieldBuilder::each_pattern(std::string_view regex) {
  Schema& each = schema().items ? *schema().items : *schema().additional;
  each.pattern = std::string(regex);
  return *this;
}

FieldBuilder& FieldBuilder::list_map(std::vector<std::string> keys) {
  schema().list_keys = std::move(keys);
  return *this;
}

FieldBuilder& FieldBuilder::atomic() {
  schema().atomic = true;
  return *this;
}

FieldBuilder& FieldBuilder::rule(Rule rule) {
  schema().rules.push_back(std::move(rule));
  return *this;
}

namespace detail {

FieldBuilder add_field(TypeInfo& info, std::string_view name, std::string_view description,
                       const ValueOps& ops, std::function<const void*(const void*)> locate,
                       Json initial) {
  Property property{std::string(name), ops.schema(), false};
  property.schema.description = std::string(description);
  info.schema.properties.push_back(std::move(property));
  info.slots.push_back({std::string(name), &ops, std::move(locate), false});
  return FieldBuilder(info, info.slots.size() - 1, std::move(initial));
}

Schema array_schema(const ValueOps& item) {
  Schema schema = plain(Schema::Type::kArray);
  schema.items = std::make_shared<Schema>(item.schema());
  return schema;
}

ReadOutcome read_array(const Json& json, const ValueOps& item,
                       const std::function<void*()>& append) {
  if (!json.is_array()) return must_be("an array");
  std::size_t index = 0;
  for (const Json& entry : json.as_array()) {
    if (auto failed = item.read(append(), entry)) {
      failed->path = "[" + std::to_string(index) + "]" + failed->path;
      return failed;
    }
    ++index;
  }
  return {};
}

Status read_object(const TypeInfo& info, const meta::Resource& resource, void* object,
                   const Json& json) {
  for (const auto& [name, wanted] :
       {std::pair<std::string_view, std::string>{"apiVersion", resource.api_version()},
        {"kind", resource.kind}}) {
    const Json& found = json[name];
    if (!found.is_null() && found.as_string() != wanted) {
      return Error(Code::kInvalid,
                   meta::describe(json) + ": " + std::string(name) + " must be " + wanted);
    }
  }
  if (auto failed = read_struct(info, object, json)) {
    const std::string path = failed->path.empty() ? "" : failed->path.substr(1) + ": ";
    return Error(Code::kInvalid, meta::describe(json) + ": " + path + failed->what);
  }
  return {};
}

Json write_object(const TypeInfo& info, const meta::Resource& resource, const void* object) {
  Json out = Json::object({{"apiVersion", resource.api_version()}, {"kind", resource.kind}});
  Json members = write_struct(info, object);
  for (auto& [name, value] : members.object_members()) {
    if (!out.contains(name)) out.set(name, std::move(value));
  }
  return out;
}

}  // namespace detail
}  // namespace varda::api
