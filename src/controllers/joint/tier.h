// The tiers of a JointInferenceService, whichever way its spec has them. Pure.
#pragma once

#include <string>
#include <vector>

#include "api/core/node.h"
#include "api/sedna/joint_inference_service.h"

namespace varda::controllers {

/// Borrows from the service.
struct Tier {
  std::string name;   // edge, cloud, or the tier's: the worker of names and labels
  std::string layer;  // device, edge, cloud where the spec says it; "": its node does
  const api::ModelReference* model = nullptr;
  const api::HardExampleMining* policy = nullptr;  // null: none
  std::string node;                                // "": none is named
  const api::NodeSelection* selector = nullptr;    // null: none
  std::string deadline;                            // "": the service's
  const api::Worker* worker = nullptr;             // null: of spec.tiers

  /// The user's own pods; else our server.
  bool has_template() const { return worker != nullptr && worker->has_template(); }
};

/// From the device to the cloud, the first one first. Fewer than two: the spec is not valid.
std::vector<Tier> tiers_of(const api::JointInferenceService& service);

/// What the node of the first tier is told of all of them: the file cascade.json (docs/design/017). The addresses are those of the
/// service's status; a tier that has none there has none. The uid is for the agent: a service made anew counts from nothing.
codec::Json cascade_of(const api::JointInferenceService& service, const std::vector<Tier>& tiers);

}  // namespace varda::controllers
