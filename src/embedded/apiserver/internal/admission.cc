#include "apiserver/internal/admission.h"

#include <algorithm>

#include "apiserver/internal/metadata.h"
#include "apiserver/kinds/crd.h"

namespace varda::apiserver {

bool is_pod(const meta::Resource& resource) {
  return resource.group.empty() && resource.plural == "pods";
}
bool is_service(const meta::Resource& resource) {
  return resource.group.empty() && resource.plural == "services";
}
bool is_namespace(const meta::Resource& resource) {
  return resource.group.empty() && resource.plural == "namespaces";
}
bool is_crd(const meta::Resource& resource) {
  return resource.group == kCrdGroup && resource.plural == kCrdPlural;
}

namespace {

// The default service account and priority.
void fill_pod(Json& pod) {
  Json& spec = pod["spec"];
  if (!spec.is_object()) return;
  if (spec["serviceAccountName"].as_string().empty()) {
    const std::string old_name = std::as_const(spec)["serviceAccount"].as_string();
    spec.set("serviceAccountName", old_name.empty() ? "default" : old_name);
  }
  spec.set("serviceAccount", std::as_const(spec)["serviceAccountName"]);
  if (!spec.contains("priority")) spec.set("priority", 0);
  if (!spec.contains("preemptionPolicy")) spec.set("preemptionPolicy", "PreemptLowerPriority");
}

}  // namespace

namespace {

// Accepted, unless another definition already has one of the names.
Json crd_status(Core& core, const Kind& kind, const Json& crd) {
  auto page = core.store.list({.prefix = kind.storage_prefix()});
  if (page.ok()) {
    for (const store::Entry& entry : page->entries) {
      auto other = codec::parse_json(*entry.value);
      if (!other.ok() || name_of(*other) == name_of(crd)) continue;
      if (other->at("status/acceptedNames/kind").as_string().empty())
        continue;  // `other` was refused
      Json refused = refused_crd_status(crd, *other);
      if (!refused.is_null()) return refused;
    }
  }
  return accepted_crd_status(crd);
}

}  // namespace

void fill_at_creation(Core& core, const Kind& kind, Json& object) {
  const meta::Resource& resource = kind.resource();
  if (is_namespace(resource)) {
    object["metadata"]["labels"].set("kubernetes.io/metadata.name", name_of(object));
    object["spec"].set("finalizers", Json::array({"kubernetes"}));
    object["status"].set("phase", "Active");
  } else if (is_pod(resource)) {
    fill_pod(object);
  } else if (is_crd(resource)) {
    object.set("status", crd_status(core, kind, object));
  }
}

void fill_at_update(Core& core, const Kind& kind, Json& object, const Json& old) {
  const meta::Resource& resource = kind.resource();
  if (is_namespace(resource)) {
    object["metadata"]["labels"].set("kubernetes.io/metadata.name", name_of(object));
    object.set("spec", old["spec"]);
    return;
  }
  if (!is_crd(resource) || deleting(object)) return;
  const bool refused = old.at("status/acceptedNames/kind").as_string().empty();
  if (std::as_const(object)["spec"] == old["spec"] && !refused) return;
  Json status = crd_status(core, kind, object);
  // storedVersions keeps every version ever stored until an administrator migrates.
  Json stored = old.at("status/storedVersions");
  for (const Json& version : std::as_const(status)["storedVersions"].as_array()) {
    const auto& known = std::as_const(stored).as_array();
    if (std::find(known.begin(), known.end(), version) == known.end()) stored.push_back(version);
  }
  status.set("storedVersions", std::move(stored));
  object.set("status", std::move(status));
}

void begin_deletion(const Kind& kind, Json& object, std::string_view now) {
  if (is_namespace(kind.resource())) {
    object["status"].set("phase", "Terminating");
  } else if (is_crd(kind.resource()) && !deleting(object)) {
    add_finalizer(object, kCrdFinalizer);
    object["status"]["conditions"].push_back(
        Json::object({{"type", "Terminating"},
                      {"status", "True"},
                      {"lastTransitionTime", now},
                      {"reason", "InstanceDeletionPending"},
                      {"message",
                       "CustomResourceDefinition marked for deletion; CustomResource deletion will "
                       "begin soon"}}));
  }
}

bool waits_for_controller(const Kind& kind, const Json& object) {
  return is_namespace(kind.resource()) && !object.at("spec/finalizers").empty();
}

}  // namespace varda::apiserver
