// CustomResourceDefinition: defaults, validation and status.
#include "apiserver/kinds/crd.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "apiserver/kinds/core_kind.h"
#include "base/clock.h"
#include "base/text.h"
#include "meta/json_path.h"
#include "meta/object.h"
#include "schema/structural.h"

namespace varda::apiserver {

namespace {

constexpr const char* kLabelSentence =
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with "
    "an "
    "alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')";

bool is_label(std::string_view name) {
  return !name.empty() && std::islower(static_cast<unsigned char>(name[0])) != 0 &&
         meta::check_dns_label(name).empty();
}

void check_label(const Json& name, const std::string& field, Causes& causes) {
  const std::string& text = name.as_string();
  if (text.empty()) {
    causes.push_back(required(field));
  } else if (!is_label(text)) {
    causes.push_back(invalid(field, name, kLabelSentence));
  }
}

// A kind is a label that may have capitals.
void check_kind_name(const Json& name, const std::string& field, Causes& causes) {
  const std::string& text = name.as_string();
  if (text.empty()) {
    causes.push_back(required(field));
  } else if (!is_label(lower(text))) {
    causes.push_back(
        invalid(field, name,
                std::string("may have mixed case, but should otherwise match: ") + kLabelSentence));
  }
}

void check_names(const Json& names, Causes& causes) {
  check_label(names["plural"], "spec.names.plural", causes);
  check_label(names["singular"], "spec.names.singular", causes);
  check_kind_name(names["kind"], "spec.names.kind", causes);
  check_kind_name(names["listKind"], "spec.names.listKind", causes);
  if (!names["kind"].as_string().empty() && names["kind"] == names["listKind"]) {
    causes.push_back(
        invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same"));
  }
  for (const char* list : {"shortNames", "categories"}) {
    const Json::Array& items = names[list].as_array();
    for (std::size_t i = 0; i < items.size(); ++i)
      check_label(items[i], indexed(child("spec.names", list), i), causes);
  }
}

bool simple_path(const std::string& path) {
  return path.starts_with(".") && meta::JsonPath::parse(path).ok();
}

void check_columns(const Json& columns, const std::string& field, Causes& causes) {
  static const std::set<std::string> types = {"boolean", "date", "integer", "number", "string"};
  static const std::set<std::string> formats = {"",     "int32", "int64",     "float",   "double",
                                                "byte", "date",  "date-time", "password"};
  for (std::size_t i = 0; i < columns.as_array().size(); ++i) {
    const Json& column = columns.as_array()[i];
    const std::string where = indexed(field, i);
    if (column["name"].as_string().empty()) causes.push_back(required(where + ".name"));
    const std::string& type = column["type"].as_string();
    if (type.empty()) {
      causes.push_back(
          required(where + ".type", "must be one of boolean,date,integer,number,string"));
    } else if (!types.contains(type)) {
      causes.push_back(
          invalid(where + ".type", type, "must be one of boolean,date,integer,number,string"));
    }
    if (!formats.contains(column["format"].as_string())) {
      causes.push_back(
          invalid(where + ".format", column["format"],
                  "must be one of byte,date,date-time,double,float,int32,int64,password"));
    }
    const std::string& path = column["jsonPath"].as_string();
    if (path.empty()) {
      causes.push_back(required(where + ".JSONPath"));
    } else if (!simple_path(path)) {
      causes.push_back(
          invalid(where + ".JSONPath", path, "must be a simple json path starting with ."));
    }
  }
}

void check_subresources(const Json& subresources, const std::string& field, Causes& causes) {
  const Json& scale = subresources["scale"];
  if (scale.is_null()) return;
  const auto check = [&](const char* member, std::string_view below, bool needed) {
    const std::string& path = scale[member].as_string();
    const std::string where = field + ".scale." + member;
    if (path.empty()) {
      if (needed) causes.push_back(required(where));
    } else if (path.find('[') != std::string::npos || !simple_path(path)) {
      causes.push_back(invalid(where, path, "must be a simple json path without array notation"));
    } else if (!path.starts_with(below)) {
      causes.push_back(
          invalid(where, path,
                  "should be a json path under " + std::string(below.substr(0, below.size() - 1))));
    }
  };
  check("specReplicasPath", ".spec.", true);
  check("statusReplicasPath", ".status.", true);
  if (!scale["labelSelectorPath"].as_string().empty() &&
      !scale["labelSelectorPath"].as_string().starts_with(".spec.")) {
    check("labelSelectorPath", ".status.", false);
  }
}

// Errors in parts that are equal in all versions name the old place in spec, from before versions
// existed.
std::string place(const Json& versions, std::size_t index, const char* member,
                  const char* shared_place, const char* own_place) {
  const Json& first = versions.as_array()[0][member];
  const bool shared = std::all_of(versions.as_array().begin(), versions.as_array().end(),
                                  [&](const Json& v) { return v[member] == first; });
  return shared ? std::string(shared_place) : indexed("spec.versions", index) + own_place;
}

void check_version(const Json& versions, std::size_t i, Causes& causes) {
  const Json& version = versions.as_array()[i];
  const std::string where = indexed("spec.versions", i);
  if (!is_label(version["name"].as_string()))
    causes.push_back(invalid(where + ".name", version["name"].as_string(), kLabelSentence));
  const Json& document = version.at("schema/openAPIV3Schema");
  const auto first_place = [&](const std::string& field) {
    return i == 0 || field.starts_with("spec.versions");
  };
  if (document.is_null()) {
    causes.push_back(required(where + ".schema.openAPIV3Schema", "schemas are required"));
  } else if (const std::string field =
                 place(versions, i, "schema", "spec.validation.openAPIV3Schema",
                       ".schema.openAPIV3Schema");
             first_place(field)) {
    append(causes, schema::check_structural(document, field));
  }
  if (const std::string field = place(versions, i, "additionalPrinterColumns",
                                      "spec.additionalPrinterColumns", ".additionalPrinterColumns");
      first_place(field)) {
    check_columns(version["additionalPrinterColumns"], field, causes);
  }
  if (const std::string field =
          place(versions, i, "subresources", "spec.subresources", ".subresources");
      first_place(field)) {
    check_subresources(version["subresources"], field, causes);
  }
  const Json::Array& fields = version["selectableFields"].as_array();
  for (std::size_t f = 0; f < fields.size(); ++f) {
    const std::string path = indexed(where + ".selectableFields", f) + ".jsonPath";
    if (fields[f]["jsonPath"].as_string().empty()) {
      causes.push_back(required(path));
    } else if (!simple_path(fields[f]["jsonPath"].as_string())) {
      causes.push_back(invalid(path, fields[f]["jsonPath"], "is an invalid path"));
    }
  }
}

void check_versions(const Json& versions, Causes& causes) {
  if (versions.empty()) {
    causes.push_back(
        {"FieldValueInvalid",
         "Invalid value: null: must have exactly one version marked as storage version",
         "spec.versions"});
    return;
  }
  std::set<std::string> names;
  int stored = 0;
  for (std::size_t i = 0; i < versions.size(); ++i) {
    const Json& version = versions.as_array()[i];
    if (!names.insert(version["name"].as_string()).second) {
      causes.push_back({"FieldValueInvalid",
                        "Invalid value: " + codec::write_json(version["name"]) +
                            ": must contain unique version names",
                        indexed("spec.versions", i) + ".name"});
    }
    stored += version["storage"].as_bool() ? 1 : 0;
    check_version(versions, i, causes);
  }
  if (stored != 1) {
    causes.push_back({"FieldValueInvalid",
                      "Invalid value: [" + std::to_string(versions.size()) +
                          " versions]: must have exactly one version marked as storage version",
                      "spec.versions"});
  }
}

class CrdKind : public CoreKind {
 public:
  CrdKind()
      : CoreKind({.info = {.resource = {"apiextensions.k8s.io", "v1", "CustomResourceDefinition",
                                        "customresourcedefinitions", false},
                           .short_names = {"crd", "crds"},
                           .categories = {"api-extensions"},
                           .status = true,
                           .unconditional_update = false,
                           .delete_returns_object = true},
                  .generation = Generation::kSpec}) {}

  void apply_defaults(Json& crd) const override {
    CoreKind::apply_defaults(crd);
    Json& names = crd["spec"]["names"];
    const std::string kind = names["kind"].as_string();
    if (names["singular"].as_string().empty()) names.set("singular", lower(kind));
    if (names["listKind"].as_string().empty() && !kind.empty())
      names.set("listKind", kind + "List");
    if (crd.at("spec/conversion").is_null())
      crd["spec"].set("conversion", Json::object({{"strategy", "None"}}));
  }

  Causes validate_create(const Json& crd) const override {
    const Json& spec = crd["spec"];
    Causes causes;
    const std::string& group = spec["group"].as_string();
    if (crd.at("metadata/name").as_string() != spec.at("names/plural").as_string() + "." + group) {
      causes.push_back(invalid("metadata.name", crd.at("metadata/name"),
                               "must be spec.names.plural+\".\"+spec.group"));
    }
    if (group.empty()) {
      causes.push_back(required("spec.group"));
    } else if (std::string wrong = meta::check_dns_subdomain(group); !wrong.empty()) {
      causes.push_back(invalid("spec.group", group, wrong));
    } else if (group.find('.') == std::string::npos) {
      causes.push_back(invalid("spec.group", group, "should be a domain with at least one dot"));
    }
    const std::string& scope = spec["scope"].as_string();
    if (scope != "Cluster" && scope != "Namespaced")
      causes.push_back(not_supported("spec.scope", scope, {"Cluster", "Namespaced"}));
    check_names(spec["names"], causes);
    check_versions(spec["versions"], causes);
    if (spec["preserveUnknownFields"].as_bool()) {
      causes.push_back(invalid("spec.preserveUnknownFields", true,
                               "cannot set to true, set x-kubernetes-preserve-unknown-fields to "
                               "true in spec.versions[*].schema instead"));
    }
    const std::string& strategy = spec.at("conversion/strategy").as_string();
    if (strategy != "None")
      causes.push_back(not_supported("spec.conversion.strategy", strategy, {"None"}));
    return causes;
  }

  Causes validate_update(const Json& crd, const Json& old, Part part) const override {
    Causes causes;
    if (part == Part::kStatus) return causes;
    for (const char* member : {"scope", "group"}) {
      if (!(crd["spec"][member] == old["spec"][member])) {
        causes.push_back(invalid(child("spec", member), crd["spec"][member], "field is immutable"));
      }
    }
    for (const char* member : {"plural", "kind"}) {
      const Json& name = crd.at("spec/names")[member];
      if (!(name == old.at("spec/names")[member]))
        causes.push_back(invalid(child("spec.names", member), name, "field is immutable"));
    }
    if (!causes.empty()) return causes;
    causes = validate_create(crd);
    for (const Json& stored : old.at("status/storedVersions").as_array()) {
      const Json::Array& versions = crd.at("spec/versions").as_array();
      const bool still_listed =
          std::any_of(versions.begin(), versions.end(),
                      [&](const Json& version) { return version["name"] == stored; });
      if (!still_listed) {
        causes.push_back(
            {"FieldValueInvalid",
             "Invalid value: " + go_quote(stored.as_string()) + ": must appear in spec.versions",
             "status.storedVersions[0]"});
      }
    }
    return causes;
  }

  const std::vector<Column>& columns() const override {
    static const std::vector<Column> columns = {
        name_column(), column("Created At", "Time of creation.", 0, "date")};
    return columns;
  }
  std::vector<Json> cells(const Json& crd, WallTime) const override {
    return {crd.at("metadata/name"), crd.at("metadata/creationTimestamp")};
  }
};

Json condition(const Json& crd, const char* type, const char* status, const char* reason,
               std::string message) {
  Json time = meta::format_time(system_clock().wall());
  for (const Json& before : crd.at("status/conditions").as_array()) {
    const bool holds = before["type"].as_string() == type && before["status"].as_string() == status;
    if (holds && before["lastTransitionTime"].is_string()) time = before["lastTransitionTime"];
  }
  return Json::object({{"type", type},
                       {"status", status},
                       {"lastTransitionTime", time},
                       {"reason", reason},
                       {"message", std::move(message)}});
}

Json stored_versions(const Json& crd) {
  Json stored = Json::array();
  for (const Json& version : crd.at("spec/versions").as_array()) {
    if (version["storage"].as_bool()) stored.push_back(version["name"]);
  }
  return stored;
}

}  // namespace

KindPtr make_crd() { return std::make_shared<CrdKind>(); }

Json accepted_crd_status(const Json& crd) {
  return Json::object(
      {{"conditions",
        Json::array({condition(crd, "NamesAccepted", "True", "NoConflicts", "no conflicts found"),
                     condition(crd, "Established", "True", "InitialNamesAccepted",
                               "the initial names have been accepted")})},
       {"acceptedNames", crd.at("spec/names")},
       {"storedVersions", stored_versions(crd)}});
}

Json refused_crd_status(const Json& crd, const Json& other) {
  if (!(crd.at("spec/group") == other.at("spec/group")) ||
      crd.at("metadata/name") == other.at("metadata/name"))
    return nullptr;
  const Json& wanted = crd.at("spec/names");
  const Json& held = other.at("status/acceptedNames");
  const Json* taken = nullptr;
  const char* reason = "";
  std::set<std::string> names = {held["plural"].as_string(), held["singular"].as_string()};
  for (const Json& name : held["shortNames"].as_array()) names.insert(name.as_string());
  Json accepted = Json::object();
  const auto try_name = [&](const char* member, const char* why, bool free) {
    if (!free) {
      taken = &wanted[member];
      reason = why;
    } else if (!wanted[member].is_null()) {
      accepted.set(member, wanted[member]);
    }
  };
  const std::set<std::string> kinds = {held["kind"].as_string(), held["listKind"].as_string()};
  try_name("plural", "PluralConflict", !names.contains(wanted["plural"].as_string()));
  try_name("singular", "SingularConflict", !names.contains(wanted["singular"].as_string()));
  try_name("kind", "KindConflict", !kinds.contains(wanted["kind"].as_string()));
  try_name("listKind", "ListKindConflict", !kinds.contains(wanted["listKind"].as_string()));
  if (taken == nullptr) return nullptr;
  for (const char* member : {"plural", "kind"}) {
    if (!accepted.contains(member)) accepted.set(member, "");
  }
  return Json::object(
      {{"conditions", Json::array({condition(crd, "NamesAccepted", "False", reason,
                                             go_quote(taken->as_string()) + " is already in use"),
                                   condition(crd, "Established", "False", "NotAccepted",
                                             "not all names are accepted")})},
       {"acceptedNames", std::move(accepted)},
       {"storedVersions", stored_versions(crd)}});
}

}  // namespace varda::apiserver
