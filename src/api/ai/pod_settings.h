// Settings of the pods that Varda makes for a model. Every kind with such pods has these fields.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "api/core/pod.h"
#include "codec/json.h"

namespace varda::api {

using codec::Json;

template <typename T>
class Type;

/// Amounts by resource name, as text: "cpu": "500m". An integer in the object becomes text.
struct Quantities {
  std::map<std::string, std::string> values;
  friend bool operator==(const Quantities&, const Quantities&) = default;
};

/// Resources that the server's container requests, and their limits.
struct ModelResources {
  Quantities requests, limits;
  static void describe(Type<ModelResources>& t);
};

/// A Secret with the credentials of an image registry, in the pod's namespace.
struct ImagePullSecret {
  std::string name;
  Json unknown;
  static void describe(Type<ImagePullSecret>& t);
};

/// A kind derives its spec, worker or tier from PodSettings, and describes the members with
/// describe_pod_settings() (describe_pod_settings.h).
struct PodSettings {
  ModelResources resources;
  std::vector<EnvVar> env;
  std::vector<ImagePullSecret> image_pull_secrets;
  std::vector<Toleration> tolerations;
  std::string priority_class_name;

  /// As in a spec, without unset members. Empty if no member is set.
  Json settings_to_json() const;
  static void describe(Type<PodSettings>& t);
};

}  // namespace varda::api
