#include "meta/references.h"

namespace varda::meta {

using codec::Json;

bool pod_uses(const Json& pod, std::string_view resource, std::string_view name) {
  const bool secret = resource == "secrets";
  const Json& spec = pod["spec"];
  for (const Json& volume : spec["volumes"].as_array()) {
    if (volume.at(secret ? "secret/secretName" : "configMap/name").as_string() == name) return true;
    for (const Json& source : volume.at("projected/sources").as_array()) {
      if (source.at(secret ? "secret/name" : "configMap/name").as_string() == name) return true;
    }
  }
  for (const Json& item : spec["imagePullSecrets"].as_array()) {
    if (secret && item["name"].as_string() == name) return true;
  }
  for (const char* list : {"containers", "initContainers"}) {
    for (const Json& container : spec[list].as_array()) {
      for (const Json& from : container["envFrom"].as_array()) {
        if (from.at(secret ? "secretRef/name" : "configMapRef/name").as_string() == name)
          return true;
      }
      for (const Json& env : container["env"].as_array()) {
        if (env.at(secret ? "valueFrom/secretKeyRef/name" : "valueFrom/configMapKeyRef/name")
                .as_string() == name)
          return true;
      }
    }
  }
  return false;
}

bool edge_node_uses(const Json& edge_node, const ObjectKey& secret) {
  const std::string wanted = secret.str();
  for (const Json& model : edge_node.at("spec/models").as_array()) {
    for (const Json& version : model["versions"].as_array()) {
      if (version["credentials"].as_string() == wanted) return true;
    }
  }
  for (const Json& worker : edge_node.at("spec/workers").as_array()) {
    if (worker.at("bucket/credentials").as_string() == wanted) return true;
  }
  return false;
}

}  // namespace varda::meta
