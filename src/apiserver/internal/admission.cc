#include "apiserver/internal/admission.h"

#include <algorithm>

#include "apiserver/internal/metadata.h"
#include "apiserver/kinds/crd.h"

namespace varda::apiserver {

bool is_pod(const meta::Resource& resource) { return resource.group.empty() && resource.plural == "pods"; }
bool is_service(const meta::Resource& resource) { return resource.group.empty() && resource.plural == "services"; }
bool is_namespace(const meta::Resource& resource) { return resource.group.empty() && resource.plural == "namespaces"; }
bool is_crd(const meta::Resource& resource) { return resource.group == kCrdGroup && resource.plural == kCrdPlural; }

namespace {

// Pods survive five minutes of a node's absence unless they say otherwise, and run as the default service account.
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
  for (const char* key : {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}) {
    const auto& have = std::as_const(spec)["tolerations"].as_array();
    const bool tolerated = std::any_of(have.begin(), have.end(), [&](const Json& item) {
      const std::string& item_key = item["key"].as_string();
      const std::string& effect = item["effect"].as_string();
      return (item_key.empty() || item_key == key) && (effect.empty() || effect == "NoExecute");
    });
    if (!tolerated) {
      spec["tolerations"].push_back(
          Json::object({{"key", key}, {"operator", "Exists"}, {"effect", "NoExecute"}, {"tolerationSeconds", 300}}));
    }
  }
}

}  // namespace

void fill_at_creation(const Kind& kind, Json& object) {
  const meta::Resource& resource = kind.resource();
  if (is_namespace(resource)) {
    object["metadata"]["labels"].set("kubernetes.io/metadata.name", name_of(object));
    object["spec"].set("finalizers", Json::array({"kubernetes"}));
    object["status"].set("phase", "Active");
  } else if (is_pod(resource)) {
    fill_pod(object);
  } else if (is_crd(resource)) {
    object.set("status", accepted_crd_status(object));
  }
}

void fill_at_update(const Kind& kind, Json& object, const Json& old) {
  const meta::Resource& resource = kind.resource();
  if (is_namespace(resource)) {
    object["metadata"]["labels"].set("kubernetes.io/metadata.name", name_of(object));
    object.set("spec", old["spec"]);
  } else if (is_crd(resource) && object["spec"] != old["spec"]) {
    Json status = accepted_crd_status(object);
    // Versions that were ever stored stay named until an administrator migrates.
    Json stored = old.at("status/storedVersions");
    for (const Json& version : status["storedVersions"].as_array()) {
      const auto& known = stored.as_array();
      if (std::find(known.begin(), known.end(), version) == known.end()) stored.push_back(version);
    }
    status.set("storedVersions", std::move(stored));
    object.set("status", std::move(status));
  }
}

void begin_deletion(const Kind& kind, Json& object) {
  if (is_namespace(kind.resource())) {
    object["status"].set("phase", "Terminating");
  } else if (is_crd(kind.resource()) && !deleting(object)) {
    add_finalizer(object, kCrdFinalizer);
  }
}

bool waits_for_controller(const Kind& kind, const Json& object) {
  return is_namespace(kind.resource()) && !object.at("spec/finalizers").empty();
}

}  // namespace varda::apiserver
