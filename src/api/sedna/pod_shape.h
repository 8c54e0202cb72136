// The schema of a pod template inside a kind. It describes the common members of core/v1 and checks
// their types. All other members pass through untouched, and are checked when the Pod is made.
#pragma once

#include "api/schema.h"

namespace varda::api {

/// A kind may have a pod for several workers. Its CRD describes the members for one of them
/// (Schema::terse).
enum class PodText { kDescribed, kBare };

/// A PodSpec with at least one container.
Schema pod_spec_shape(PodText docs = PodText::kBare);
/// A PodSpec, or a pod template. Sedna's documents show the first form, Go types of some versions
/// the second one.
Schema worker_spec_shape(PodText docs = PodText::kBare);
/// {metadata: {labels, annotations}, spec}.
Schema pod_template_shape(PodText docs = PodText::kBare);

}  // namespace varda::api
