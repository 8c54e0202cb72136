#include "apiserver/kinds/core_kind.h"

#include <algorithm>

#include "apiserver/kinds/core.h"
#include "base/text.h"
#include "meta/node_address.h"
#include "meta/object.h"
#include "meta/selector.h"

namespace varda::apiserver {

namespace {

KindInfo complete(KindInfo info) {
  if (info.singular.empty()) info.singular = lower(info.resource.kind);
  if (info.list_kind.empty()) info.list_kind = info.resource.kind + "List";
  if (info.served_versions.empty()) info.served_versions = {info.resource.api_version()};
  return info;
}

bool differs(const Json& a, const Json& b, const char* member) { return !(a[member] == b[member]); }

}  // namespace

CoreKind::CoreKind(CoreTraits traits)
    : Kind(complete(traits.info)),
      traits_(std::move(traits)),
      type_(Types::all().get(resource().kind)) {}

Status CoreKind::decode(Json& object) const { return apiserver::decode(type_, object); }

std::vector<std::string> CoreKind::prune(Json& object) const {
  std::vector<std::string> unknown;
  apiserver::prune(type_, object, unknown);
  std::sort(unknown.begin(), unknown.end());
  return unknown;
}

void CoreKind::apply_defaults(Json& object) const { apply_table_defaults(type_, object); }

void CoreKind::prepare_create(Json& object) const {
  if (info().status) object.erase("status");
  if (traits_.generation != Generation::kNone) {
    object["metadata"].set("generation", 1);
  } else {
    object["metadata"].erase("generation");
  }
}

void CoreKind::prepare_update(Json& object, const Json& old, Part part) const {
  Json& metadata = object["metadata"];
  const Json& generation = old.at("metadata/generation");
  if (generation.is_null()) {
    metadata.erase("generation");
  } else {
    metadata.set("generation", generation);
  }
  if (part == Part::kStatus) {
    // A status write may also carry metadata; all other fields stay.
    for (const Field& field : type_.fields) {
      if (field.name == "status") continue;
      if (const Json* value = old.find(field.name)) {
        object.set(field.name, *value);
      } else {
        object.erase(field.name);
      }
    }
    if (traits_.status_preserves_labels) {
      for (const char* member : {"labels", "ownerReferences"}) {
        if (const Json* value = old["metadata"].find(member)) {
          metadata.set(member, *value);
        } else {
          metadata.erase(member);
        }
      }
    }
    return;
  }
  if (info().status) {
    if (const Json* status = old.find("status")) object.set("status", *status);
  }
  bool changed = traits_.generation != Generation::kNone && differs(object, old, "spec");
  if (traits_.generation == Generation::kSpecAndAnnotations)
    changed = changed || differs(metadata, old["metadata"], "annotations");
  if (changed) metadata.set("generation", generation.as_integer() + 1);
}

std::optional<ListMerge> CoreKind::list_merge(std::string_view path) const {
  return apiserver::list_merge(type_, path);
}

Json CoreKind::openapi_schema() const { return openapi(type_); }

void append(Causes& all, Causes more) {
  std::move(more.begin(), more.end(), std::back_inserter(all));
}

Causes validate_reported_addresses(std::string_view kind, const Json& old, const Json& object) {
  Causes causes;
  for (const meta::AddressProblem& one :
       meta::added_address_problems(kind, old["status"], object["status"])) {
    causes.push_back(invalid(one.field, one.value, one.message));
  }
  return causes;
}

Column column(std::string name, std::string description, int priority, std::string type) {
  return {.name = std::move(name),
          .type = std::move(type),
          .format = "",
          .description = std::move(description),
          .priority = priority};
}

Column name_column() {
  return {.name = "Name",
          .type = "string",
          .format = "name",
          .description = "Name of the object, unique within its namespace."};
}

Column age_column() { return column("Age", "Time since the creation of the object."); }

std::string age_cell(const Json& time, WallTime now) {
  if (!time.is_string()) return "<unknown>";
  auto then = meta::parse_time(time.as_string());
  if (!then.ok()) return "<invalid>";
  const auto age = std::chrono::duration_cast<std::chrono::seconds>(now - *then);
  return meta::format_age(std::max(age, std::chrono::seconds(0)));
}

Json age_of(const Json& object, WallTime now) {
  return age_cell(object.at("metadata/creationTimestamp"), now);
}

namespace {

std::string join_members(const Json& list, const char* member) {
  std::string text;
  for (const Json& item : list.as_array()) {
    if (!text.empty()) text += ",";
    text += item[member].as_string();
  }
  return text;
}

}  // namespace

std::string container_names(const Json& pod_spec) {
  return join_members(pod_spec["containers"], "name");
}

std::string container_images(const Json& pod_spec) {
  return join_members(pod_spec["containers"], "image");
}

std::string selector_text(const Json& selector) {
  auto parsed = meta::LabelSelector::from_json(selector);
  if (!parsed.ok() || parsed->empty()) return "<none>";
  return parsed->str();
}

std::string map_text(const Json& map) {
  std::vector<std::string> entries;
  for (const Json::Member& member : map.as_object())
    entries.push_back(member.first + "=" + member.second.as_string());
  if (entries.empty()) return "<none>";
  std::sort(entries.begin(), entries.end());
  return join(entries, ",");
}

std::string text_or(const Json& value, std::string_view otherwise) {
  return value.as_string().empty() ? std::string(otherwise) : value.as_string();
}

std::vector<KindPtr> core_kinds() {
  std::vector<KindPtr> kinds = {make_config_map(), make_endpoints(),
                                make_event(),      make_namespace(),
                                make_node(),       make_pod(),
                                make_secret(),     make_service_account(),
                                make_service(),    make_controller_revision(),
                                make_daemon_set(), make_deployment(),
                                make_replica_set()};
  for (KindPtr& kind : make_reviews()) kinds.push_back(std::move(kind));
  for (const KindPtr& kind : {make_job(), make_lease(), make_endpoint_slice(), make_crd()})
    kinds.push_back(kind);
  return kinds;
}

}  // namespace varda::apiserver
