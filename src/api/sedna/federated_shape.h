// The schema of spec.federated of a FederatedLearningJob: the settings of varda-aggregate.
// varda-aggregate reads the same members (src/federated/settings.h).
#pragma once

#include "api/schema.h"

namespace varda::api {

Schema federated_shape();

}  // namespace varda::api
