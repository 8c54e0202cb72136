// Names that the files of this folder share.
#pragma once

#include <string_view>

#include "api/sedna/incremental_learning_job.h"
#include "base/result.h"
#include "incremental/settings.h"

namespace varda::controllers::incrementallearning {

// Annotations of the pod of a stage: it belongs to one attempt.
inline constexpr std::string_view kRoundAnnotation = "edgeai.io/round",
                                  kAttemptAnnotation = "edgeai.io/attempt",
                                  kStageAnnotation = "edgeai.io/stage";

/// The settings of the round machine. kInvalid: the message names the member of the spec.
Result<incremental::Settings> settings_of(const api::IncrementalLearningJobSpec& spec);

}  // namespace varda::controllers::incrementallearning
