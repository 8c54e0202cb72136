#include "meta/resources.h"

namespace varda::meta::core {

const Resource& config_maps() {
  static const Resource resource{"", "v1", "ConfigMap", "configmaps", true};
  return resource;
}
const Resource& controller_revisions() {
  static const Resource resource{"apps", "v1", "ControllerRevision", "controllerrevisions", true};
  return resource;
}
const Resource& daemon_sets() {
  static const Resource resource{"apps", "v1", "DaemonSet", "daemonsets", true};
  return resource;
}
const Resource& definitions() {
  static const Resource resource{"apiextensions.k8s.io", "v1", "CustomResourceDefinition",
                                 "customresourcedefinitions", false};
  return resource;
}
const Resource& deployments() {
  static const Resource resource{"apps", "v1", "Deployment", "deployments", true};
  return resource;
}
const Resource& endpoints() {
  static const Resource resource{"", "v1", "Endpoints", "endpoints", true};
  return resource;
}
const Resource& events() {
  static const Resource resource{"", "v1", "Event", "events", true};
  return resource;
}
const Resource& jobs() {
  static const Resource resource{"batch", "v1", "Job", "jobs", true};
  return resource;
}
const Resource& leases() {
  static const Resource resource{"coordination.k8s.io", "v1", "Lease", "leases", true};
  return resource;
}
const Resource& namespaces() {
  static const Resource resource{"", "v1", "Namespace", "namespaces", false};
  return resource;
}
const Resource& nodes() {
  static const Resource resource{"", "v1", "Node", "nodes", false};
  return resource;
}
const Resource& pods() {
  static const Resource resource{"", "v1", "Pod", "pods", true};
  return resource;
}
const Resource& replica_sets() {
  static const Resource resource{"apps", "v1", "ReplicaSet", "replicasets", true};
  return resource;
}
const Resource& secrets() {
  static const Resource resource{"", "v1", "Secret", "secrets", true};
  return resource;
}
const Resource& services() {
  static const Resource resource{"", "v1", "Service", "services", true};
  return resource;
}

}  // namespace varda::meta::core
