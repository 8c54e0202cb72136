// Indexes of JointInferenceServices in the caches, and the services that a change affects: one
// change must not scan thousands of services. Pure functions over caches.
#pragma once

#include <string>
#include <vector>

#include "api/core/node.h"
#include "api/core/pod.h"
#include "api/edgeai/edge_node.h"
#include "api/sedna/joint_inference_service.h"
#include "controllers/inferencemodel/inferencemodel.h"
#include "controllers/joint/joint.h"
#include "controllers/joint/tier.h"
#include "hosting/node_index.h"
#include "runtime/controller.h"

namespace varda::controllers::joint {

using Keys = std::vector<meta::ObjectKey>;

/// The nodes where a tier may be, as index values: the name of the named node. Otherwise labels
/// ("key=value", or "key" for any value) or a layer (":edge"), of which each such node has one; or
/// "" for requirements without an index.
std::vector<std::string> places_of(const Tier& tier);
/// The values under which a node finds all tiers that may be on it, and more. `node` null: there is
/// only the name.
std::vector<std::string> values_to_search(const std::string& name, const api::Node* node);
/// True: a tier after the first is on the only node of its layer.
bool on_only_node(const Tier& tier);
/// All nodes where the tier may be, and others: a selector has further requirements. Sorted by
/// name.
hosting::NodeList nodes_for(const Tier& tier, const runtime::Caches& caches);
void add_nodes_of(const Tier& tier, const runtime::Caches& caches, hosting::NodeSet& nodes);

/// The nodes that tiers name or endpoints are on.
std::vector<std::string> nodes_by_name(const api::JointInferenceService& service);
/// Services by places_of() of tiers that nodes affect, and by nodes_by_name().
inline constexpr const char* kByNode = "node";
std::vector<std::string> index_by_node(const api::JointInferenceService& service);
/// Services by places_of() of their first tier.
inline constexpr const char* kByFirstNode = "first node";
std::vector<std::string> index_by_first_node(const api::JointInferenceService& service);
/// Services whose own cloud worker has a node port, by the host of the tier's URL; "": none yet.
inline constexpr const char* kByAddress = "node port address";
std::vector<std::string> index_by_address(const api::JointInferenceService& service);
inline constexpr const char* kByUid = "uid";
std::vector<std::string> index_by_uid(const api::JointInferenceService& service);
/// Pods of services by node.
inline constexpr const char* kPodsOn = "of services on";
std::vector<std::string> index_pods_on(const api::Pod& pod);

/// Declares all indexes that the functions below read.
template <runtime::Object T>
void add_indexes(runtime::Watches<T>& w) {
  using api::JointInferenceService;
  w.template indexes<JointInferenceService>(kByModel, index_by_model)
      .template indexes<JointInferenceService>(kByNode, index_by_node)
      .template indexes<JointInferenceService>(kByFirstNode, index_by_first_node)
      .template indexes<JointInferenceService>(kByAddress, index_by_address)
      .template indexes<JointInferenceService>(kByUid, index_by_uid)
      .template indexes<api::Pod>(kPodsOn, index_pods_on);
  inferencemodel::add_indexes(w);
}

/// The service of a pod, from the labels: a Deployment's pods have another owner. Empty: none.
Keys service_of(const api::Pod& pod);
/// Services with a tier that refers to a Model or an InferenceModel of this name, or with a child
/// of this name.
Keys of_model(const meta::ObjectKey& model, const runtime::Caches& caches);
/// Services that the node affects: a tier may be there, or an endpoint is. `node` as above.
Keys of_node(const std::string& name, const api::Node* node, const runtime::Caches& caches);
/// Services with a first tier that may be on the node, or has a pod there. Sorted.
Keys first_on(const std::string& node, const runtime::Caches& caches);

/// Services that the change affects. Null: no such version.
Keys changed_by(const api::EdgeNode* before, const api::EdgeNode* now,
                const runtime::Caches& caches);
Keys changed_by(const api::Node* before, const api::Node* now, const runtime::Caches& caches);

}  // namespace varda::controllers::joint
