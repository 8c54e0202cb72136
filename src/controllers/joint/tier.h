// Tiers of a JointInferenceService, from either form of its spec. Pure.
#pragma once

#include <string>
#include <vector>

#include "api/core/node.h"
#include "api/sedna/joint_inference_service.h"

namespace varda::controllers::joint {

/// Borrows from the service.
struct Tier {
  std::string name;   // edge, cloud, or the tier's name: WORKER in names and labels
  std::string layer;  // device, edge or cloud, if the spec has it; "": its node decides
  const api::ModelReference* model = nullptr;
  const api::HardExampleMining* policy = nullptr;  // null: none
  std::string node;                                // "": none is named
  const api::NodeSelection* selector = nullptr;    // null: none
  std::string deadline;                            // "": the service's
  const api::Worker* worker = nullptr;             // null: a tier of spec.tiers
  const api::PodSettings* settings = nullptr;      // for a pod of our server

  /// True: the user's own pods. False: our server.
  bool has_template() const { return worker != nullptr && worker->has_template(); }
};

/// In order from the device to the cloud. Fewer than two: the spec is invalid.
std::vector<Tier> tiers_of(const api::JointInferenceService& service);

/// The file joint.json for the node of the first tier, with all tiers (docs/design/017).
/// Addresses come from the service's status; a tier without one there has none. The uid is for the
/// agent: a recreated service counts from zero.
codec::Json joint_file_of(const api::JointInferenceService& service,
                          const std::vector<Tier>& tiers);

}  // namespace varda::controllers::joint
