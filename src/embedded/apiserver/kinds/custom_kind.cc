// The kinds of a CustomResourceDefinition.
#include <algorithm>
#include <charconv>

#include "apiserver/kinds/core_kind.h"
#include "apiserver/kinds/crd.h"
#include "meta/json_path.h"
#include "schema/schema.h"

namespace varda::apiserver {

namespace {

struct VersionRank {
  int stage = 0;  // 3 stable, 2 beta, 1 alpha, 0 other
  unsigned major = 0, minor = 0;
};

VersionRank rank(std::string_view name) {
  VersionRank result;
  if (!name.starts_with("v")) return result;
  const char* at = name.data() + 1;
  const char* end = name.data() + name.size();
  auto major = std::from_chars(at, end, result.major);
  if (major.ec != std::errc()) return {};
  std::string_view rest(major.ptr, static_cast<std::size_t>(end - major.ptr));
  if (rest.empty()) {
    result.stage = 3;
    return result;
  }
  for (const auto& [prefix, stage] : {std::pair<std::string_view, int>{"beta", 2}, {"alpha", 1}}) {
    if (!rest.starts_with(prefix)) continue;
    rest.remove_prefix(prefix.size());
    const auto minor = std::from_chars(rest.data(), rest.data() + rest.size(), result.minor);
    if (minor.ec != std::errc() || minor.ptr != rest.data() + rest.size()) return {};
    result.stage = stage;
    return result;
  }
  return {};
}

// Whole numbers become integers, as after a round trip through Go.
void normalize_numbers(Json& value) {
  switch (value.type()) {
    case Json::Type::kNumber: {
      const double number = value.as_double();
      const std::int64_t whole = value.as_integer();
      if (static_cast<double>(whole) == number && number > -9e18 && number < 9e18) value = whole;
      break;
    }
    case Json::Type::kArray:
      for (Json& item : value.array_items()) normalize_numbers(item);
      break;
    case Json::Type::kObject:
      for (Json::Member& member : value.object_members()) normalize_numbers(member.second);
      break;
    default:
      break;
  }
}

struct PrinterColumn {
  Column head;
  meta::JsonPath path;
};

Json cell_text(const std::vector<const Json*>& values) {
  std::string text;
  for (const Json* value : values) {
    if (!text.empty()) text += " ";
    text += value->is_string() ? value->as_string() : codec::write_json(codec::sorted(*value));
  }
  return text;
}

Json cell(const PrinterColumn& column, const Json& object, WallTime now) {
  const std::vector<const Json*> values = column.path.find(object);
  if (values.empty()) return nullptr;
  const Json& value = *values.front();
  const std::string& type = column.head.type;
  if (type == "string") return value.is_null() ? Json() : cell_text(values);
  if (type == "integer") return value.is_number() ? Json(value.as_integer()) : Json();
  if (type == "number") return value.is_number() ? value : Json();
  if (type == "boolean") return value.is_bool() ? value : Json();
  return value.is_string() ? Json(age_cell(value, now)) : Json();
}

// A value with its Go type, as in an error of the scale paths.
std::string shown_with_type(const Json& value) {
  const char* type = value.is_array()     ? "[]interface {}"
                     : value.is_object()  ? "map[string]interface {}"
                     : value.is_string()  ? "string"
                     : value.is_bool()    ? "bool"
                     : value.is_null()    ? "<nil>"
                     : value.is_integer() ? "int64"
                                          : "float64";
  return (value.is_string() ? value.as_string() : codec::write_json(value)) + " is of the type " +
         type;
}

// The value at a scale path: a count (`zero` 0) or a text (""). Null: absent, or of another type,
// which adds a cause.
const Json* at_scale_path(const Json& object, const std::string& path, const Json& zero,
                          Causes& causes) {
  const Json* at = &object;
  std::string_view rest = std::string_view(path).substr(1);
  const auto mismatch = [&](const char* wanted) {
    causes.push_back(invalid(
        path, zero, path + " accessor error: " + shown_with_type(*at) + ", expected " + wanted));
    return nullptr;
  };
  while (!rest.empty()) {
    if (!at->is_object()) return mismatch("map[string]interface{}");
    const std::size_t end = std::min(rest.find('.'), rest.size());
    at = at->find(rest.substr(0, end));
    if (at == nullptr) return nullptr;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (zero.is_integer() && !at->is_integer()) return mismatch("int64");
  if (zero.is_string() && !at->is_string()) return mismatch("string");
  return at;
}

// Checks the replica count at a scale path.
void check_scale_path(const Json& object, const std::string& path, Causes& causes) {
  const Json* count = at_scale_path(object, path, 0, causes);
  if (count == nullptr) return;
  if (count->as_integer() < 0) {
    causes.push_back(invalid(path, *count, "should be a non-negative integer"));
  } else if (count->as_integer() > 2147483647) {
    causes.push_back(invalid(path, *count, "should be less than or equal to 2147483647"));
  }
}

// True if errors prevent cross-field rules. As in kube-apiserver, errors of pattern or range do
// not.
bool blocks_rules(const Causes& causes) {
  static constexpr std::string_view kBlocking[] = {"FieldValueNotSupported", "FieldValueRequired",
                                                   "FieldValueTooLong", "FieldValueTooMany",
                                                   "FieldValueTypeInvalid"};
  return std::any_of(causes.begin(), causes.end(), [](const StatusCause& cause) {
    return std::find(std::begin(kBlocking), std::end(kBlocking), cause.reason) !=
           std::end(kBlocking);
  });
}

struct CustomTraits {
  schema::SchemaPtr schema;
  schema::SchemaPtr storage_schema;  // storage version; fields it lacks are not stored
  Json document;                     // the schema as written
  std::vector<PrinterColumn> columns;
  std::vector<std::string> selectable;
  NativeRule rule;
};

class CustomKind : public Kind {
 public:
  CustomKind(KindInfo info, CustomTraits traits)
      : Kind(std::move(info)), traits_(std::move(traits)) {
    heads_.push_back(name_column());
    for (const PrinterColumn& column : traits_.columns) heads_.push_back(column.head);
  }

  Status decode(Json& object) const override {
    for (Json::Member& member : object.object_members()) {
      if (member.first != "metadata") normalize_numbers(member.second);
    }
    return {};
  }

  std::vector<std::string> prune(Json& object) const override {
    std::vector<std::string> unknown;
    schema::prune(*traits_.schema, object, unknown);
    std::sort(unknown.begin(), unknown.end());
    return unknown;
  }

  void apply_defaults(Json& object) const override {
    schema::apply_defaults(*traits_.schema, object);
    if (traits_.storage_schema == traits_.schema) return;
    std::vector<std::string> lost;
    schema::prune(*traits_.storage_schema, object, lost);
  }

  void from_storage(Json& object) const override {
    Kind::from_storage(object);
    std::vector<std::string> unknown;
    schema::prune(*traits_.storage_schema, object, unknown);
    schema::apply_defaults(*traits_.storage_schema, object);
  }

  Causes validate_create(const Json& object) const override {
    Causes causes = check_scale(object);
    append(causes, schema::validate(*traits_.schema, object, {}));
    append(causes, structure(object));
    if (traits_.rule && !blocks_rules(causes)) append(causes, traits_.rule(Json(), object));
    return causes;
  }

  Causes validate_update(const Json& object, const Json& old, Part part) const override {
    if (part == Part::kStatus) return validate_status(object, old);
    Causes causes = check_scale(object);
    append(causes, schema::validate(*traits_.schema, object, {.old = &old, .field = ""}));
    // Errors that existed before do not block other changes.
    if (Causes now = structure(object); !now.empty() && structure(old).empty())
      append(causes, std::move(now));
    if (traits_.rule && !blocks_rules(causes)) append(causes, traits_.rule(old, object));
    return causes;
  }

  const std::vector<Column>& columns() const override { return heads_; }

  std::vector<Json> cells(const Json& object, WallTime now) const override {
    std::vector<Json> row = {object.at("metadata/name")};
    for (const PrinterColumn& column : traits_.columns) row.push_back(cell(column, object, now));
    return row;
  }

  const std::vector<std::string>& selectable_fields() const override { return traits_.selectable; }

  Json openapi_schema() const override { return traits_.document; }

 private:
  Causes check_scale(const Json& object) const {
    Causes causes;
    if (!info().scale) return causes;
    check_scale_path(object, info().scale->spec_replicas, causes);
    check_scale_path(object, info().scale->status_replicas, causes);
    return causes;
  }

  Causes structure(const Json& object) const {
    Causes causes = schema::validate_lists(*traits_.schema, object, "");
    append(causes, schema::validate_embedded(*traits_.schema, object, ""));
    return causes;
  }

  Causes validate_status(const Json& object, const Json& old) const {
    const auto property = traits_.schema->properties.find("status");
    const Json* status = object.find("status");
    if (property == traits_.schema->properties.end() || status == nullptr) return {};
    Causes causes = schema::validate(*property->second, *status,
                                     {.old = old.find("status"), .field = "status"});
    append(causes, schema::validate_lists(*property->second, *status, "status"));
    if (const auto& scale = info().scale) {
      check_scale_path(object, scale->status_replicas, causes);
      if (!scale->label_selector.empty())
        (void)at_scale_path(object, scale->label_selector, "", causes);
    }
    if (traits_.rule && !blocks_rules(causes)) {
      for (StatusCause& cause : traits_.rule(old, object)) {
        if (cause.field == "status" || cause.field.starts_with("status."))
          causes.push_back(std::move(cause));
      }
    }
    return causes;
  }

  CustomTraits traits_;
  std::vector<Column> heads_;
};

Result<std::vector<PrinterColumn>> printer_columns(const Json& version) {
  std::vector<PrinterColumn> columns;
  for (const Json& column : version["additionalPrinterColumns"].as_array()) {
    TRY(meta::JsonPath path, meta::JsonPath::parse(column["jsonPath"].as_string()));
    columns.push_back({.head = {.name = column["name"].as_string(),
                                .type = column["type"].as_string(),
                                .format = column["format"].as_string(),
                                .description = column["description"].as_string(),
                                .priority = static_cast<int>(column["priority"].as_integer())},
                       .path = std::move(path)});
  }
  if (columns.empty()) {
    Column age = age_column();
    age.type = "date";
    TRY(meta::JsonPath path, meta::JsonPath::parse(".metadata.creationTimestamp"));
    columns.push_back({.head = std::move(age), .path = std::move(path)});
  }
  return columns;
}

std::vector<std::string> texts(const Json& list) {
  std::vector<std::string> out;
  for (const Json& item : list.as_array()) out.push_back(item.as_string());
  return out;
}

KindInfo info_of(const Json& spec, const Json& version) {
  const Json& names = spec["names"];
  KindInfo info;
  info.resource = {.group = spec["group"].as_string(),
                   .version = version["name"].as_string(),
                   .kind = names["kind"].as_string(),
                   .plural = names["plural"].as_string(),
                   .namespaced = spec["scope"].as_string() != "Cluster"};
  info.singular = names["singular"].as_string();
  info.list_kind = names["listKind"].as_string();
  info.short_names = texts(names["shortNames"]);
  info.categories = texts(names["categories"]);
  info.verbs = {"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"};
  info.custom = true;
  info.unconditional_update = false;
  const Json& subresources = version["subresources"];
  info.status = !subresources["status"].is_null();
  if (const Json& scale = subresources["scale"]; !scale.is_null()) {
    info.scale = Scale{.spec_replicas = scale["specReplicasPath"].as_string(),
                       .status_replicas = scale["statusReplicasPath"].as_string(),
                       .label_selector = scale["labelSelectorPath"].as_string()};
  }
  for (const Json& other : spec["versions"].as_array()) {
    if (other["storage"].as_bool()) info.storage_version = other["name"].as_string();
    if (other["served"].as_bool()) info.served_versions.push_back(other["name"].as_string());
  }
  std::sort(info.served_versions.begin(), info.served_versions.end(), preferred_version);
  for (std::string& name : info.served_versions) name = info.resource.group + "/" + name;
  return info;
}

Json document_of(const Json& version) {
  const Json& document = version.at("schema/openAPIV3Schema");
  if (document.is_object()) return document;
  return Json::object({{"type", "object"}, {"x-kubernetes-preserve-unknown-fields", true}});
}

bool established(const Json& crd) {
  const Json::Array& conditions = crd.at("status/conditions").as_array();
  return std::none_of(conditions.begin(), conditions.end(), [](const Json& condition) {
    return condition["type"].as_string() == "Established" &&
           condition["status"].as_string() == "False";
  });
}

}  // namespace

bool preferred_version(const std::string& a, const std::string& b) {
  const VersionRank x = rank(a);
  const VersionRank y = rank(b);
  if (x.stage != y.stage) return x.stage > y.stage;
  if (x.stage == 0) return a < b;
  if (x.major != y.major) return x.major > y.major;
  return x.minor > y.minor;
}

Result<std::vector<KindPtr>> kinds_from_crd(const Json& crd, const NativeRules& rules) {
  std::vector<KindPtr> kinds;
  if (!established(crd)) return kinds;
  const Json& spec = crd["spec"];
  const std::string name = crd.at("metadata/name").as_string();
  Json stored;
  for (const Json& version : spec["versions"].as_array()) {
    if (version["storage"].as_bool()) stored = document_of(version);
  }
  if (stored.is_null()) return Error(Code::kInvalid, name + ": no version is stored");
  TRY(const schema::SchemaPtr storage_schema, schema::compile(stored).context(name));
  for (const Json& version : spec["versions"].as_array()) {
    if (!version["served"].as_bool()) continue;
    KindInfo info = info_of(spec, version);
    CustomTraits traits;
    traits.document = document_of(version);
    traits.storage_schema = storage_schema;
    traits.schema = storage_schema;
    if (!(traits.document == stored)) {
      TRY(traits.schema, schema::compile(traits.document).context(name));
    }
    TRY(traits.columns, printer_columns(version));
    for (const Json& field : version["selectableFields"].as_array()) {
      const std::string& path = field["jsonPath"].as_string();
      traits.selectable.push_back(path.starts_with(".") ? path.substr(1) : path);
    }
    const auto rule = rules.find({info.resource.group, info.resource.kind});
    if (rule != rules.end()) traits.rule = rule->second;
    const bool storage = info.resource.version == info.storage_version;
    auto kind = std::make_shared<CustomKind>(std::move(info), std::move(traits));
    kinds.insert(storage ? kinds.begin() : kinds.end(), std::move(kind));
  }
  return kinds;
}

}  // namespace varda::apiserver
