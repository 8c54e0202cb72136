// Schemas of the settings of an IncrementalLearningJob that other rooms read as JSON: triggers,
// gate, trial and rollback (room incremental), samples and pseudo-labels (room spool).
#pragma once

#include "api/schema.h"

namespace varda::api {

Schema trigger_shape();
Schema deploy_trigger_shape();
Schema gate_shape();
Schema kept_samples_shape();
Schema pseudo_labels_shape();
Schema trial_shape();
Schema rollback_shape();
Schema rollout_shape();
Schema retry_shape();

}  // namespace varda::api
