// Descriptions of PodSettings' members, for kinds whose pods Varda makes. Only .cc files of those
// kinds include this header.
#pragma once

#include <string>
#include <vector>

#include "api/ai/pod_settings.h"
#include "api/describe.h"
#include "api/rule.h"

namespace varda::api {

/// No variable of `env` has a name that Varda sets in its own servers.
Rule reserved_variables();

template <typename T>
void describe_pod_settings(Type<T>& t) {
  t.template field<ModelResources>(
      "resources", &PodSettings::resources,
      "Extension: resources that the server requests, and their limits.");
  t.template field<std::vector<EnvVar>>(
       "env", &PodSettings::env,
       "Extension: environment variables of the server. Variables that Varda sets have precedence.")
      .items_max(64)
      .list_map({"name"});
  t.template field<std::vector<ImagePullSecret>>(
       "imagePullSecrets", &PodSettings::image_pull_secrets,
       "Extension: Secrets in the same namespace, for the registries of the pod's images.")
      .items_max(16)
      .list_map({"name"});
  t.template field<std::vector<Toleration>>(
       "tolerations", &PodSettings::tolerations,
       "Extension: tolerated taints of nodes. At the edge, Varda adds those that let the pod run "
       "while the node is offline.")
      .items_max(64);
  t.template field<std::string>("priorityClassName", &PodSettings::priority_class_name,
                                "Extension: PriorityClass of the pod.")
      .length(0, 253)
      .pattern("^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$");
}

}  // namespace varda::api
