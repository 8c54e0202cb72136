// InferenceModels that a JointInferenceService makes for its further tiers. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/sedna/joint_inference_service.h"
#include "controllers/joint/plan.h"
#include "controllers/joint/tier.h"
#include "hosting/placement.h"
#include "hosting/port_claims.h"
#include "hosting/servers.h"

namespace varda::controllers::joint {

/// "NAME-TIER"
std::string child_name(const api::JointInferenceService& service, const Tier& tier);
/// True: this very service controls the model.
bool is_child(const api::InferenceModel& model, const api::JointInferenceService& service);
/// True: the model belongs to an earlier service of the same name, and will be deleted.
bool is_left_over(const api::InferenceModel& model, const api::JointInferenceService& service);

/// The child as it was last applied, with the uid of the present object. Nothing: unknown.
std::optional<Json> applied_of(const api::InferenceModel& child);

struct ChildPlan {
  std::optional<Json> object;               // absent: see `problem`; an existing child stays
  std::optional<hosting::Problem> problem;  // ModelUnsupported, NodeNotFound, NoNodeMatches,
                                            // SeveralNodesMatch, PortInUse, SignatureRefused
  std::optional<hosting::PortClaim> claim;  // for a child in the edge layer
};

/// Set if our server in the first tier cannot ask `model`. The model's server is then known not to
/// speak the Open Inference Protocol. `node`: the model's node at the edge, or null.
std::optional<hosting::Problem> server_problem(const api::InferenceModel& model,
                                               const api::EdgeNode* node,
                                               const hosting::Options& options);

/// Plans the InferenceModel of a tier that refers to a Model. `existing`: the present child, or
/// null. A version that serves now stays in the manifest until the next one serves, so that no
/// request fails. `siblings`: node ports that earlier tiers want.
ChildPlan plan_child(const api::JointInferenceService& service, const Tier& tier,
                     const workers::ResolvedModel& model, const api::InferenceModel* existing,
                     const JointWorld& world, const std::vector<hosting::PortClaim>& siblings,
                     const hosting::Options& options);

}  // namespace varda::controllers::joint
