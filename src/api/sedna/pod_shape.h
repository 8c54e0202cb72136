// What the schema of a kind says of a pod template: the members of core/v1 that people write, described and checked for their
// types. Whatever else core/v1 has passes through untouched, and is checked where the Pod is made.
#pragma once

#include "api/schema.h"

namespace varda::api {

/// A PodSpec with at least one container.
Schema pod_spec_shape();
/// {metadata: {labels, annotations}, spec}.
Schema pod_template_shape();

}  // namespace varda::api
