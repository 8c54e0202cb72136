// Isolation of a pod and its containers, from their specs: namespaces, limits, privileges. Pure.
#pragma once

#include "node/driver.h"
#include "node/internal/record.h"

namespace varda::node::internal {

PodConfig pod_config(const PodRecord& record, const os::Path& directory);

/// Limits and shares as in a kubelet: 1024 shares per CPU, quotas over 100 ms. Unreadable
/// quantities set no limit, because the API server has validated them.
Resources container_resources(const Json& container);

/// The container's securityContext; unset members come from the pod's.
Security container_security(const Json& pod_spec, const Json& container);

}  // namespace varda::node::internal
