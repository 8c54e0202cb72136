// How a pod and its containers are fenced in, from their specs: namespaces, limits, privileges. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "node/driver.h"
#include "node/internal/record.h"

namespace varda::node::internal {

/// A quantity in thousandths, rounded up: "250m" is 250, "1Ki" 1024000. Nothing: it is none, or too large.
std::optional<std::int64_t> quantity_millis(std::string_view text);

PodConfig pod_config(const PodRecord& record, const os::Path& directory);

/// Limits and shares as a kubelet derives them: shares of 1024 a CPU, quotas over 100 ms. Nothing that cannot be read is a limit:
/// an API server has refused it before.
Resources container_resources(const Json& container);

/// The container's own securityContext, where it is silent the pod's.
Security container_security(const Json& pod_spec, const Json& container);

}  // namespace varda::node::internal
