#include "apiserver/internal/metadata.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/text.h"
#include "codec/reported_paths.h"

namespace varda::apiserver {

namespace {

// The name in messages of Go's decoder.
std::string type_name(const Json& value) {
  if (value.is_bool()) return "bool";
  return value.is_number() ? "number" : std::string(codec::type_name(value.type()));
}

Error wrong_type(const Json& value, std::string_view field, std::string_view wanted) {
  return Error(Code::kInvalid, "json: cannot unmarshal " + type_name(value) +
                                   " into Go struct field ObjectMeta." + std::string(field) +
                                   " of type " + std::string(wanted));
}

void drop_nulls_and_empty(Json& metadata) {
  auto& members = metadata.object_members();
  std::erase_if(members, [](const Json::Member& member) {
    const Json& value = member.second;
    return value.is_null() || ((value.is_object() || value.is_array()) && value.empty()) ||
           (value.is_string() && value.as_string().empty());
  });
}

Status check_strings(const Json& map, std::string_view field) {
  if (!map.is_object()) return wrong_type(map, field, "map[string]string");
  for (const auto& [name, value] : map.as_object()) {
    if (!value.is_string() && !value.is_null()) return wrong_type(value, field, "string");
  }
  return {};
}

// A null in a map of strings decodes as "".
void nulls_to_empty(Json* map) {
  if (map == nullptr) return;
  for (auto& [name, value] : map->object_members()) {
    if (value.is_null()) value = "";
  }
}

Status check_time(const Json& value, std::string_view field) {
  if (value.is_null()) return {};
  if (!value.is_string()) return wrong_type(value, field, "string");
  auto parsed = meta::parse_time(value.as_string());
  if (!parsed.ok()) {
    return Error(Code::kInvalid, "parsing time " + in_quotes(value.as_string()) +
                                     " as \"2006-01-02T15:04:05Z07:00\": cannot parse " +
                                     in_quotes(value.as_string()) + " as \"2006\"");
  }
  return {};
}

Status decode_owner(Json& reference, std::string_view path, std::vector<std::string>& unknown) {
  if (!reference.is_object()) return wrong_type(reference, "ownerReferences", "v1.OwnerReference");
  static constexpr std::array kKnown = {"apiVersion", "kind",       "name",
                                        "uid",        "controller", "blockOwnerDeletion"};
  const auto is_known = [](const std::string& name) {
    return std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end();
  };
  for (const auto& [name, value] : reference.as_object()) {
    if (!is_known(name)) {
      codec::report_path(unknown, [&, &name = name] { return std::string(path) + "." + name; });
    } else if (name == "controller" || name == "blockOwnerDeletion") {
      if (!value.is_bool() && !value.is_null())
        return wrong_type(value, "ownerReferences." + name, "bool");
    } else if (!value.is_string() && !value.is_null()) {
      return wrong_type(value, "ownerReferences." + name, "string");
    }
  }
  std::erase_if(reference.object_members(), [&](const Json::Member& member) {
    return member.second.is_null() || !is_known(member.first);
  });
  return {};
}

}  // namespace

StatusCause invalid_value(std::string field, std::string_view value, std::string_view why) {
  return {.reason = "FieldValueInvalid",
          .message = "Invalid value: " + in_quotes(value) + ": " + std::string(why),
          .field = std::move(field)};
}

bool deleting(const Json& object) { return !object.at("metadata/deletionTimestamp").is_null(); }
bool has_finalizers(const Json& object) { return !object.at("metadata/finalizers").empty(); }
const std::string& name_of(const Json& object) { return object.at("metadata/name").as_string(); }
const std::string& namespace_of(const Json& object) {
  return object.at("metadata/namespace").as_string();
}
const std::string& uid_of(const Json& object) { return object.at("metadata/uid").as_string(); }

bool add_finalizer(Json& object, std::string_view finalizer) {
  Json& list = object["metadata"]["finalizers"];
  for (const Json& item : list.as_array()) {
    if (item.as_string() == finalizer) return false;
  }
  list.push_back(finalizer);
  return true;
}

bool remove_finalizer(Json& object, std::string_view finalizer) {
  Json* list = object["metadata"].find("finalizers");
  if (list == nullptr) return false;
  auto& items = list->array_items();
  const auto removed =
      std::erase_if(items, [&](const Json& item) { return item.as_string() == finalizer; });
  if (items.empty()) object["metadata"].erase("finalizers");
  return removed > 0;
}

Status decode_metadata(Json& object, std::vector<std::string>& unknown) {
  Json* found = object.find("metadata");
  if (found == nullptr || found->is_null()) {
    object.set("metadata", Json::object());
    return {};
  }
  Json& metadata = *found;
  if (!metadata.is_object()) {
    return Error(Code::kInvalid, "json: cannot unmarshal " + type_name(metadata) +
                                     " into Go struct field metadata of type v1.ObjectMeta");
  }
  static constexpr std::array kStrings = {"name",     "generateName", "namespace",
                                          "selfLink", "uid",          "resourceVersion"};
  static constexpr std::array kOthers = {"labels",
                                         "annotations",
                                         "creationTimestamp",
                                         "deletionTimestamp",
                                         "generation",
                                         "deletionGracePeriodSeconds",
                                         "finalizers",
                                         "ownerReferences",
                                         "managedFields"};
  bool foreign = false;
  const auto is_known = [&](const std::string& name) {
    return std::find(kStrings.begin(), kStrings.end(), name) != kStrings.end() ||
           std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end();
  };
  for (auto& [name, value] : metadata.object_members()) {
    const bool text = std::find(kStrings.begin(), kStrings.end(), name) != kStrings.end();
    if (value.is_null() && is_known(name)) {
      continue;
    } else if (text) {
      if (!value.is_string()) return wrong_type(value, name, "string");
    } else if (name == "labels" || name == "annotations") {
      TRY_VOID(check_strings(value, name));
      nulls_to_empty(&value);
    } else if (name == "creationTimestamp" || name == "deletionTimestamp") {
      TRY_VOID(check_time(value, name));
    } else if (name == "generation" || name == "deletionGracePeriodSeconds") {
      if (!value.is_integer()) return wrong_type(value, name, "int64");
    } else if (name == "finalizers") {
      if (!value.is_array()) return wrong_type(value, name, "[]string");
      for (const Json& item : value.as_array()) {
        if (!item.is_string()) return wrong_type(item, name, "string");
      }
    } else if (name == "ownerReferences") {
      if (!value.is_array()) return wrong_type(value, name, "[]v1.OwnerReference");
      std::size_t index = 0;
      for (Json& item : value.array_items()) {
        TRY_VOID(decode_owner(item, "metadata.ownerReferences[" + std::to_string(index++) + "]",
                              unknown));
      }
    } else if (name != "managedFields") {
      codec::report_path(unknown, [&name = name] { return "metadata." + name; });
      foreign = true;
    }
  }
  if (foreign)
    std::erase_if(metadata.object_members(),
                  [&](const Json::Member& member) { return !is_known(member.first); });
  metadata.erase("managedFields");
  metadata.erase("selfLink");
  drop_nulls_and_empty(metadata);
  return {};
}

void fill_new_metadata(Json& object, const meta::Resource& resource, std::string_view ns,
                       std::string_view now, Rng& rng) {
  Json& metadata = object["metadata"];
  for (const char* name :
       {"deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "generation"})
    metadata.erase(name);
  if (resource.namespaced) {
    metadata.set("namespace", ns);
  } else {
    metadata.erase("namespace");
  }
  if (metadata["name"].as_string().empty() && !metadata["generateName"].as_string().empty()) {
    metadata.set("name", metadata["generateName"].as_string().substr(0, 58) + rng.name_suffix(5));
  }
  metadata.set("uid", rng.uuid());
  metadata.set("creationTimestamp", now);
}

void keep_metadata(Json& object, const Json& old) {
  Json& metadata = object["metadata"];
  const Json& before = old["metadata"];
  for (const char* name : {"namespace", "uid", "creationTimestamp", "generation"}) {
    if (const Json* value = before.find(name)) {
      metadata.set(name, *value);
    } else {
      metadata.erase(name);
    }
  }
  // A deletion cannot be undone; a client may omit these fields without harm.
  for (const char* name : {"deletionTimestamp", "deletionGracePeriodSeconds"}) {
    const Json* value = before.find(name);
    if (value != nullptr && !metadata.contains(name)) metadata.set(name, *value);
  }
}

std::vector<StatusCause> validate_metadata(const Kind& kind, const Json& object) {
  std::vector<StatusCause> causes;
  const Json& metadata = object["metadata"];
  const std::string& generate = metadata["generateName"].as_string();
  if (!generate.empty()) {
    if (std::string why = kind.check_name(generate, true); !why.empty()) {
      causes.push_back(invalid_value("metadata.generateName", generate, why));
    }
  }
  const std::string& name = metadata["name"].as_string();
  if (name.empty()) {
    causes.push_back({"FieldValueRequired", "Required value: name or generateName is required",
                      "metadata.name"});
  } else if (std::string why = kind.check_name(name, false); !why.empty()) {
    causes.push_back(invalid_value("metadata.name", name, why));
  }
  for (const auto& [key, value] : metadata["labels"].as_object()) {
    if (std::string why = meta::check_label_key(key); !why.empty())
      causes.push_back(invalid_value("metadata.labels", key, why));
    if (std::string why = meta::check_label_value(value.as_string()); !why.empty()) {
      causes.push_back(invalid_value("metadata.labels", value.as_string(), why));
    }
  }
  std::size_t annotation_bytes = 0;
  for (const auto& [key, value] : metadata["annotations"].as_object()) {
    if (std::string why = meta::check_label_key(lower(key)); !why.empty())
      causes.push_back(invalid_value("metadata.annotations", key, why));
    annotation_bytes += key.size() + value.as_string().size();
  }
  if (annotation_bytes > (256u << 10)) {
    causes.push_back({"FieldValueTooLong", "Too long: may not be more than 262144 bytes",
                      "metadata.annotations"});
  }
  std::size_t index = 0;
  for (const Json& item : metadata["finalizers"].as_array()) {
    const std::string& text = item.as_string();
    const std::string at = "metadata.finalizers[" + std::to_string(index++) + "]";
    if (std::string why = meta::check_label_key(text); !why.empty()) {
      causes.push_back(invalid_value("metadata.finalizers", text, why));
    } else if (!kind.info().custom && text.find('/') == std::string::npos && text != "orphan" &&
               text != "foregroundDeletion" && text != "kubernetes" && !text.ends_with(".k8s.io")) {
      causes.push_back(invalid_value(
          at, text, "name is neither a standard finalizer name nor is it fully qualified"));
    }
  }
  index = 0;
  std::size_t controllers = 0;
  for (const Json& owner : metadata["ownerReferences"].as_array()) {
    const std::string at = "metadata.ownerReferences[" + std::to_string(index++) + "]";
    if (owner["apiVersion"].as_string().empty())
      causes.push_back(invalid_value(at + ".apiVersion", "", "version must not be empty"));
    if (owner["kind"].as_string().empty())
      causes.push_back(invalid_value(at + ".kind", "", "kind must not be empty"));
    if (owner["name"].as_string().empty())
      causes.push_back(invalid_value(at + ".name", "", "name must not be empty"));
    if (owner["uid"].as_string().empty())
      causes.push_back(invalid_value(at + ".uid", "", "uid must not be empty"));
    controllers += owner["controller"].as_bool() ? 1 : 0;
  }
  if (controllers > 1) {
    causes.push_back({"FieldValueInvalid",
                      "Invalid value: \"\": Only one reference can have Controller set to true",
                      "metadata.ownerReferences"});
  }
  return causes;
}

std::vector<StatusCause> validate_metadata_update(const Kind& kind, const Json& object,
                                                  const Json& old) {
  std::vector<StatusCause> causes = validate_metadata(kind, object);
  const Json& after = object["metadata"];
  const Json& before = old["metadata"];
  if (after["deletionTimestamp"] != before["deletionTimestamp"]) {
    // As Go prints a time: "2020-01-01 00:00:00 +0000 UTC".
    std::string text = after["deletionTimestamp"].as_string();
    if (text.size() == 20) text = text.substr(0, 10) + " " + text.substr(11, 8) + " +0000 UTC";
    const StatusCause cause = {"FieldValueInvalid",
                               "Invalid value: " + text + ": field is immutable",
                               "metadata.deletionTimestamp"};
    causes.push_back(cause);
    causes.push_back(cause);
  }
  if (after["deletionGracePeriodSeconds"] != before["deletionGracePeriodSeconds"]) {
    causes.push_back({"FieldValueInvalid",
                      "Invalid value: " + codec::write_json(after["deletionGracePeriodSeconds"]) +
                          ": field is immutable; may only be changed via deletion",
                      "metadata.deletionGracePeriodSeconds"});
  }
  if (deleting(old)) {
    std::string added;
    const auto& known = before["finalizers"].as_array();
    for (const Json& item : after["finalizers"].as_array()) {
      if (std::find(known.begin(), known.end(), item) == known.end()) {
        added += (added.empty() ? "" : ", ") + in_quotes(item.as_string());
      }
    }
    if (!added.empty()) {
      causes.push_back({"FieldValueForbidden",
                        "Forbidden: no new finalizers can be added if the object is being deleted, "
                        "found new finalizers []string{" +
                            added + "}",
                        "metadata.finalizers"});
    }
  }
  return causes;
}

std::vector<std::string> tidy_metadata(const Kind& kind, Json& object) {
  std::vector<std::string> warnings;
  Json& metadata = object["metadata"];
  if (kind.info().custom) {
    for (const Json& item : std::as_const(metadata)["finalizers"].as_array()) {
      const std::string& text = item.as_string();
      if (text.find('/') == std::string::npos && text != "orphan" && text != "foregroundDeletion") {
        warnings.push_back("metadata.finalizers: " + in_quotes(text) +
                           ": prefer a domain-qualified finalizer name to avoid accidental "
                           "conflicts with other finalizer writers");
      }
    }
  }
  if (Json* owners = metadata.find("ownerReferences")) {
    std::map<std::string, Json> first;
    std::set<std::string> doubled;
    auto& items = owners->array_items();
    std::erase_if(items, [&](const Json& owner) {
      const std::string& uid = owner["uid"].as_string();
      const auto [known, added] = first.emplace(uid, owner);
      if (added) return false;
      doubled.insert(uid);
      return known->second == owner;
    });
    if (!doubled.empty()) {
      const std::string uids = join(doubled);
      warnings.push_back(
          ".metadata.ownerReferences contains duplicate entries; API server dedups owner "
          "references in 1.20+, and may reject such "
          "requests as early as 1.24; please fix your requests; duplicate UID(s) observed: " +
          uids);
    }
  }
  return warnings;
}

}  // namespace varda::apiserver
