// InferenceModels that a JointInferenceService makes for its further tiers. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/sedna/joint_inference_service.h"
#include "controllers/inferencemodel/options.h"
#include "controllers/joint/plan.h"
#include "controllers/joint/tier.h"

namespace varda::controllers {

/// "NAME-TIER"
std::string child_name(const api::JointInferenceService& service, const Tier& tier);
/// It is controlled by this very service.
bool is_child(const api::InferenceModel& model, const api::JointInferenceService& service);
/// It is of an earlier service of the name, and on its way out.
bool is_left_over(const api::InferenceModel& model, const api::JointInferenceService& service);

/// What `child` was last wished to be, and of that very object; nothing: that is not known.
std::optional<Json> wish_of(const api::InferenceModel& child);

struct ChildPlan {
  std::optional<Json> object;      // absent: it cannot be said; what is there stays
  std::optional<Problem> problem;  // DigestMissing, ModelUnsupported, NodeNotFound, NoNodeMatches, SeveralNodesMatch, PortInUse
  std::optional<PortClaim> claim;  // in the edge layer
};

/// Why a first tier of ours could not ask `model`: its server does not speak the Open Inference Protocol, as far as is known.
std::optional<Problem> server_problem(const api::InferenceModel& model, const InferenceModelOptions& options);

/// The InferenceModel of a tier whose model is a Model. `existing` null: there is none yet. A version that it serves now stays in
/// its manifest until the next one does, so that no request fails. `siblings`: what the tiers before it want of nodes.
ChildPlan plan_child(const api::JointInferenceService& service, const Tier& tier, const ResolvedModel& model,
                     const api::InferenceModel* existing, const JointWorld& world, const std::vector<PortClaim>& siblings,
                     const InferenceModelOptions& options);

}  // namespace varda::controllers
