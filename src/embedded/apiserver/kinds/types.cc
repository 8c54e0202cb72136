#include "apiserver/kinds/types.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/check.h"
#include "base/text.h"

namespace varda::apiserver {

namespace {

struct BasicName {
  std::string_view name;
  Basic basic;
};
constexpr std::array<BasicName, 11> kBasics = {{{"string", Basic::kString},
                                                {"bool", Basic::kBool},
                                                {"int32", Basic::kInt32},
                                                {"int64", Basic::kInt64},
                                                {"number", Basic::kNumber},
                                                {"quantity", Basic::kQuantity},
                                                {"intstr", Basic::kIntOrString},
                                                {"time", Basic::kTime},
                                                {"microtime", Basic::kMicroTime},
                                                {"bytes", Basic::kBytes},
                                                {"any", Basic::kAny}}};

std::vector<std::string_view> fields(std::string_view line) {
  std::vector<std::string_view> found;
  std::size_t at = 0;
  while ((at = line.find_first_not_of(' ', at)) != std::string_view::npos) {
    const std::size_t end = std::min(line.find(' ', at), line.size());
    found.push_back(line.substr(at, end - at));
    at = end;
  }
  return found;
}

// Splits "text # description".
std::string_view cut_description(std::string_view& line) {
  const auto mark = line.find(" # ");
  if (mark == std::string_view::npos) return {};
  const std::string_view description = line.substr(mark + 3);
  line = line.substr(0, mark);
  return description;
}

Json parse_default(std::string_view text) {
  auto value = codec::parse_json(text);
  return value.ok() ? std::move(value).value() : Json(std::string(text));
}

std::uint32_t parse_number(std::string_view text) {
  const auto number = parse_integer<std::uint32_t>(text);
  CHECK(number && *number != 0);
  return *number;
}

Field parse_field(std::string_view line) {
  Field field;
  field.description = std::string(cut_description(line));
  auto parts = fields(line);
  CHECK(parts.size() >= 2);
  if (parts[0].front() >= '0' && parts[0].front() <= '9') {
    const auto dot = std::min(parts[0].find('.'), parts[0].size());
    field.number = parse_number(parts[0].substr(0, dot));
    if (dot < parts[0].size()) field.inner = parse_number(parts[0].substr(dot + 1));
    parts.erase(parts.begin());
    CHECK(parts.size() >= 2);
  }
  field.name = std::string(parts[0]);
  std::string_view type = parts[1];
  if (type.starts_with("[]")) {
    field.shape = Shape::kList;
    type.remove_prefix(2);
  } else if (type.starts_with("map:")) {
    field.shape = Shape::kMap;
    type.remove_prefix(4);
  }
  const auto basic = std::find_if(kBasics.begin(), kBasics.end(),
                                  [&](const BasicName& b) { return b.name == type; });
  field.basic = basic == kBasics.end() ? Basic::kStruct : basic->basic;
  if (field.basic == Basic::kStruct)
    field.type_name = type == "meta" ? "ObjectMeta" : std::string(type);
  for (std::size_t i = 2; i < parts.size(); ++i) {
    const std::string_view flag = parts[i];
    if (flag == "!") {
      field.always = true;
    } else if (flag == "*") {
      field.pointer = true;
    } else if (flag == "^") {
      field.retain_keys = true;
    } else if (flag.starts_with("~")) {
      field.merge = true;
      field.merge_key = std::string(flag.substr(1));
    } else {
      CHECK(flag.starts_with("="));
      field.default_value = parse_default(flag.substr(1));
    }
  }
  return field;
}

}  // namespace

const Field* Type::find(std::string_view field) const {
  const auto found =
      std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == field; });
  return found == fields.end() ? nullptr : &*found;
}

std::string Type::openapi_name() const {
  std::string path = package;
  std::replace(path.begin(), path.end(), '/', '.');
  if (path.starts_with("apimachinery."))
    return "io.k8s.apimachinery.pkg.apis." + path.substr(13) + "." + name;
  if (path.starts_with("apiextensions."))
    return "io.k8s.apiextensions-apiserver.pkg.apis." + path + "." + name;
  return "io.k8s.api." + path + "." + name;
}

const Types& Types::all() {
  static const Types types;
  return types;
}

Types::Types() {
  parse(tables::pod());
  parse(tables::container());
  parse(tables::volume());
  parse(tables::meta());
  parse(tables::core());
  parse(tables::workloads());
  parse(tables::extensions());
  link();
}

const Type& Types::get(std::string_view name) const {
  const auto found = types_.find(name);
  CHECK(found != types_.end());
  return *found->second;
}

const Type* Types::find(std::string_view name) const {
  const auto found = types_.find(name);
  return found == types_.end() ? nullptr : found->second.get();
}

void Types::parse(std::string_view table) {
  std::string package;
  Type* type = nullptr;
  while (!table.empty()) {
    const std::size_t end = std::min(table.find('\n'), table.size());
    std::string_view line = table.substr(0, end);
    table.remove_prefix(std::min(end + 1, table.size()));
    if (line.empty()) continue;
    if (line.starts_with("package ")) {
      package = std::string(line.substr(8));
    } else if (line.starts_with("type ")) {
      auto made = std::make_unique<Type>();
      made->description = std::string(cut_description(line));
      made->package = package;
      made->name = std::string(line.substr(5));
      type = made.get();
      CHECK(types_.emplace(made->name, std::move(made)).second);
    } else {
      CHECK(type != nullptr);
      type->fields.push_back(parse_field(line));
    }
  }
}

void Types::link() {
  for (const auto& [name, type] : types_) {
    std::set<std::pair<std::uint32_t, std::uint32_t>> numbers;
    for (const Field& field : type->fields)
      CHECK(field.number == 0 || numbers.emplace(field.number, field.inner).second);
    for (Field& field : type->fields) {
      if (field.basic == Basic::kStruct) field.type = &get(field.type_name);
    }
  }
}

std::optional<ListMerge> list_merge(const Type& root, std::string_view path) {
  static const Type& metadata = Types::all().get("ObjectMeta");
  const Type* type = &root;
  const Field* field = nullptr;
  bool in_map = false;  // below a map any name is an entry
  while (!path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    const std::string_view name = path.substr(0, dot);
    path.remove_prefix(std::min(dot + 1, path.size()));
    if (in_map) {
      in_map = false;
      continue;
    }
    if (field == nullptr && name == "metadata" && root.find("metadata") == nullptr) {
      type = &metadata;
      field = nullptr;
      continue;
    }
    if (type == nullptr) return std::nullopt;
    field = type->find(name);
    if (field == nullptr) return std::nullopt;
    type = field->type;
    in_map = field->shape == Shape::kMap && type != nullptr;
  }
  if (field == nullptr || (!field->merge && !field->retain_keys)) return std::nullopt;
  return ListMerge{
      .merge = field->merge, .key = field->merge_key, .retain_keys = field->retain_keys};
}

namespace {

constexpr std::string_view kQuantitySchema =
    "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity";
constexpr std::string_view kIntOrStringSchema =
    "#/components/schemas/io.k8s.apimachinery.pkg.util.intstr.IntOrString";

Json openapi_of_value(const Field& field) {
  switch (field.basic) {
    case Basic::kString:
      return Json::object({{"type", "string"}});
    case Basic::kBool:
      return Json::object({{"type", "boolean"}});
    case Basic::kInt32:
      return Json::object({{"type", "integer"}, {"format", "int32"}});
    case Basic::kInt64:
      return Json::object({{"type", "integer"}, {"format", "int64"}});
    case Basic::kNumber:
      return Json::object({{"type", "number"}, {"format", "double"}});
    case Basic::kQuantity:
      return Json::object({{"$ref", kQuantitySchema}});
    case Basic::kIntOrString:
      return Json::object({{"$ref", kIntOrStringSchema}});
    case Basic::kTime:
    case Basic::kMicroTime:
      return Json::object({{"type", "string"}, {"format", "date-time"}});
    case Basic::kBytes:
      return Json::object({{"type", "string"}, {"format", "byte"}});
    case Basic::kAny:
      return Json::object({{"type", "object"}, {"x-kubernetes-preserve-unknown-fields", true}});
    case Basic::kStruct:
      break;
  }
  Json reference = Json::object({{"$ref", "#/components/schemas/" + field.type->openapi_name()}});
  return reference;
}

}  // namespace

Json openapi(const Type& type) {
  Json schema = Json::object({{"type", "object"}});
  if (!type.description.empty()) schema.set("description", type.description);
  Json properties = Json::object();
  for (const Field& field : type.fields) {
    Json value = openapi_of_value(field);
    if (field.shape == Shape::kList)
      value = Json::object({{"type", "array"}, {"items", std::move(value)}});
    if (field.shape == Shape::kMap)
      value = Json::object({{"type", "object"}, {"additionalProperties", std::move(value)}});
    // OpenAPI 3.0 allows no members beside a reference.
    if (value.contains("$ref")) value = Json::object({{"allOf", Json::array({std::move(value)})}});
    if (!field.description.empty()) value.set("description", field.description);
    if (field.default_value) value.set("default", *field.default_value);
    if (field.merge || field.retain_keys) {
      value.set("x-kubernetes-patch-strategy", !field.merge        ? "retainKeys"
                                               : field.retain_keys ? "merge,retainKeys"
                                                                   : "merge");
      if (!field.merge_key.empty()) value.set("x-kubernetes-patch-merge-key", field.merge_key);
    }
    properties.set(field.name, std::move(value));
  }
  if (!properties.empty()) schema.set("properties", std::move(properties));
  return schema;
}

}  // namespace varda::apiserver
