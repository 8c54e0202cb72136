// The built-in kinds: core/v1, apps/v1, batch/v1, coordination.k8s.io/v1, discovery.k8s.io/v1 and
// CustomResourceDefinition itself.
#pragma once

#include <vector>

#include "apiserver/kind.h"

namespace varda::apiserver {

/// Namespace, Node, Pod, Service, Endpoints, ConfigMap, Secret, ServiceAccount, Event, Lease,
/// Deployment, ReplicaSet, DaemonSet, ControllerRevision, Job, EndpointSlice,
/// CustomResourceDefinition and the self-reviews. Each group is in the order of discovery.
std::vector<KindPtr> core_kinds();

}  // namespace varda::apiserver
