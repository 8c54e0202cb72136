#include "meta/object.h"

#include <utility>

namespace varda::meta {
namespace {

Error bad(std::string_view field, std::string_view what) {
  return {Code::kInvalid, std::string(field) + ": " + std::string(what)};
}

// A null counts as absent everywhere, as in the Kubernetes API.
Status read(const Json& value, std::string_view field, std::string& out) {
  if (value.is_null()) return {};
  if (!value.is_string()) return bad(field, "must be a string");
  out = value.as_string();
  return {};
}

Status read(const Json& value, std::string_view field, std::map<std::string, std::string>& out) {
  if (value.is_null()) return {};
  if (!value.is_object()) return bad(field, "must be an object of strings");
  for (const auto& [name, text] : value.as_object()) {
    if (!text.is_string()) return bad(std::string(field) + "." + name, "must be a string");
    out[name] = text.as_string();
  }
  return {};
}

Status read(const Json& value, std::string_view field, std::vector<std::string>& out) {
  if (value.is_null()) return {};
  if (!value.is_array()) return bad(field, "must be an array of strings");
  for (const Json& item : value.as_array()) {
    if (!item.is_string())
      return bad(std::string(field) + "[" + std::to_string(out.size()) + "]", "must be a string");
    out.push_back(item.as_string());
  }
  return {};
}

Status read(const Json& value, std::string_view field, std::int64_t& out) {
  if (value.is_null()) return {};
  if (!value.is_integer()) return bad(field, "must be an integer");
  out = value.as_integer();
  return {};
}

Status read(const Json& value, std::string_view field, bool& out) {
  if (value.is_null()) return {};
  if (!value.is_bool()) return bad(field, "must be true or false");
  out = value.as_bool();
  return {};
}

Status read(const Json& value, std::string_view field, std::vector<OwnerReference>& out) {
  if (value.is_null()) return {};
  if (!value.is_array()) return bad(field, "must be an array");
  for (const Json& item : value.as_array()) {
    const std::string item_path = std::string(field) + "[" + std::to_string(out.size()) + "]";
    if (!item.is_object()) return bad(item_path, "must be an object");
    OwnerReference owner;
    TRY_VOID(read(item["apiVersion"], item_path + ".apiVersion", owner.api_version));
    TRY_VOID(read(item["kind"], item_path + ".kind", owner.kind));
    TRY_VOID(read(item["name"], item_path + ".name", owner.name));
    TRY_VOID(read(item["uid"], item_path + ".uid", owner.uid));
    TRY_VOID(read(item["controller"], item_path + ".controller", owner.controller));
    TRY_VOID(read(item["blockOwnerDeletion"], item_path + ".blockOwnerDeletion",
                  owner.block_owner_deletion));
    out.push_back(std::move(owner));
  }
  return {};
}

void put(Json& object, const char* name, const std::string& value) {
  if (!value.empty()) object.set(name, value);
}

void put(Json& object, const char* name, const std::map<std::string, std::string>& values) {
  if (values.empty()) return;
  Json map = Json::object();
  for (const auto& [key, value] : values) map.set(key, value);
  object.set(name, std::move(map));
}

Json to_json(const OwnerReference& owner) {
  Json out = Json::object({{"apiVersion", owner.api_version},
                           {"kind", owner.kind},
                           {"name", owner.name},
                           {"uid", owner.uid}});
  if (owner.controller) out.set("controller", true);
  if (owner.block_owner_deletion) out.set("blockOwnerDeletion", true);
  return out;
}

}  // namespace

std::string Resource::path(std::string_view ns, std::string_view name) const {
  std::string out = group.empty() ? "/api/" + version : "/apis/" + group + "/" + version;
  if (namespaced && !ns.empty()) out.append("/namespaces/").append(ns);
  out.append("/").append(plural);
  if (!name.empty()) out.append("/").append(name);
  return out;
}

const OwnerReference* ObjectMeta::controller() const {
  for (const OwnerReference& owner : owner_references) {
    if (owner.controller) return &owner;
  }
  return nullptr;
}

Result<ObjectMeta> ObjectMeta::from_json(const Json& metadata) {
  ObjectMeta meta;
  if (metadata.is_null()) return meta;
  if (!metadata.is_object()) return bad("metadata", "must be an object");
  for (const auto& [name, value] : metadata.as_object()) {
    const std::string field = "metadata." + name;
    if (name == "name") {
      TRY_VOID(read(value, field, meta.name));
    } else if (name == "generateName") {
      TRY_VOID(read(value, field, meta.generate_name));
    } else if (name == "namespace") {
      TRY_VOID(read(value, field, meta.ns));
    } else if (name == "uid") {
      TRY_VOID(read(value, field, meta.uid));
    } else if (name == "resourceVersion") {
      TRY_VOID(read(value, field, meta.resource_version));
    } else if (name == "generation") {
      TRY_VOID(read(value, field, meta.generation));
    } else if (name == "creationTimestamp") {
      TRY_VOID(read(value, field, meta.creation_timestamp));
    } else if (name == "deletionTimestamp") {
      std::string time;
      TRY_VOID(read(value, field, time));
      if (!time.empty()) meta.deletion_timestamp = std::move(time);
    } else if (name == "labels") {
      TRY_VOID(read(value, field, meta.labels));
    } else if (name == "annotations") {
      TRY_VOID(read(value, field, meta.annotations));
    } else if (name == "ownerReferences") {
      TRY_VOID(read(value, field, meta.owner_references));
    } else if (name == "finalizers") {
      TRY_VOID(read(value, field, meta.finalizers));
    } else {
      meta.unknown.set(name, value);
    }
  }
  return meta;
}

Json ObjectMeta::to_json() const {
  Json out = Json::object();
  put(out, "name", name);
  put(out, "generateName", generate_name);
  put(out, "namespace", ns);
  put(out, "uid", uid);
  put(out, "resourceVersion", resource_version);
  if (generation != 0) out.set("generation", generation);
  put(out, "creationTimestamp", creation_timestamp);
  if (deletion_timestamp) out.set("deletionTimestamp", *deletion_timestamp);
  put(out, "labels", labels);
  put(out, "annotations", annotations);
  if (!owner_references.empty()) {
    Json owners = Json::array();
    for (const OwnerReference& owner : owner_references) owners.push_back(meta::to_json(owner));
    out.set("ownerReferences", std::move(owners));
  }
  if (!finalizers.empty()) {
    Json list = Json::array();
    for (const std::string& finalizer : finalizers) list.push_back(finalizer);
    out.set("finalizers", std::move(list));
  }
  for (const auto& [name_, value] : unknown.as_object()) out.set(name_, value);
  return out;
}

Result<Condition> Condition::from_json(const Json& value) {
  if (!value.is_object()) return bad("condition", "must be an object");
  Condition out;
  TRY_VOID(read(value["type"], "type", out.type));
  TRY_VOID(read(value["status"], "status", out.status));
  TRY_VOID(read(value["reason"], "reason", out.reason));
  TRY_VOID(read(value["message"], "message", out.message));
  TRY_VOID(read(value["observedGeneration"], "observedGeneration", out.observed_generation));
  TRY_VOID(read(value["lastTransitionTime"], "lastTransitionTime", out.last_transition_time));
  return out;
}

Json Condition::to_json() const {
  Json out = Json::object({{"type", type}, {"status", status}});
  if (observed_generation != 0) out.set("observedGeneration", observed_generation);
  put(out, "lastTransitionTime", last_transition_time);
  // Reason and message are required members of a Condition, even if empty.
  out.set("reason", reason);
  out.set("message", message);
  return out;
}

void set_condition(std::vector<Condition>& conditions, Condition wanted, std::string_view now) {
  for (Condition& old : conditions) {
    if (old.type != wanted.type) continue;
    wanted.last_transition_time = old.status == wanted.status && !old.last_transition_time.empty()
                                      ? old.last_transition_time
                                      : std::string(now);
    old = std::move(wanted);
    return;
  }
  wanted.last_transition_time = std::string(now);
  conditions.push_back(std::move(wanted));
}

const Condition* find_condition(const std::vector<Condition>& conditions, std::string_view type) {
  for (const Condition& condition : conditions) {
    if (condition.type == type) return &condition;
  }
  return nullptr;
}

std::string describe(const Json& object) {
  const Json& metadata = object["metadata"];
  std::string kind = object["kind"].string_or("object");
  const ObjectKey key{metadata["namespace"].as_string(), metadata["name"].as_string()};
  return key.name.empty() ? kind : kind + " " + key.str();
}

}  // namespace varda::meta
