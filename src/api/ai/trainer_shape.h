// The schema of spec.trainer of a TrainingModel: the settings of varda-train. varda-train reads
// them as JSON, so no C++ type holds them here.
#pragma once

#include "api/schema.h"

namespace varda::api {

Schema trainer_shape();

}  // namespace varda::api
