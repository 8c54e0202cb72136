// Chooses the Model of a modelRef. Pure.
#pragma once

#include <optional>

#include "controllers/inferencemodel/plan.h"
#include "hosting/model_archive.h"

namespace varda::controllers::inferencemodel {

/// With a problem, `chosen` is the last choice, which keeps serving; nothing: no Model was ever
/// chosen.
struct ModelChoice {
  std::optional<api::ChosenModel> chosen;
  // ModelNotFound, ModelAmbiguous, ModelUnsupported, DigestMissing, SignatureRefused,
  // FrameworkUnsupported
  std::optional<hosting::Problem> problem;
};

/// Requires spec.modelRef.
ModelChoice choose_model(const api::InferenceModel& model, const World& world,
                         const hosting::Options& options);

/// Set if the operator has no server for the framework.
std::optional<hosting::Problem> framework_problem(const std::string& framework,
                                                  const hosting::Options& options);

}  // namespace varda::controllers::inferencemodel
