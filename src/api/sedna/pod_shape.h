// The schema of a pod template inside a kind. It describes the common members of core/v1 and checks
// their types. All other members pass through untouched, and are checked when the Pod is made.
#pragma once

#include "api/schema.h"

namespace varda::api {

/// A PodSpec with at least one container.
Schema pod_spec_shape();
/// {metadata: {labels, annotations}, spec}.
Schema pod_template_shape();

}  // namespace varda::api
