// Indexes of JointInferenceServices in the caches, and the services that a change affects: one
// change must not scan thousands of services. Pure functions over caches.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "api/core/node.h"
#include "api/core/pod.h"
#include "api/edgeai/edge_node.h"
#include "api/sedna/joint_inference_service.h"
#include "controllers/inferencemodel/inferencemodel.h"
#include "runtime/controller.h"

namespace varda::controllers::joint {

using Keys = std::vector<meta::ObjectKey>;

/// Services by the keys of the Models and InferenceModels that their tiers name, and of children.
inline constexpr const char* kByModel = "model";
std::vector<std::string> index_by_model(const api::JointInferenceService& service);
/// Services by the nodes that tiers name or endpoints are on; "" if every node affects them.
inline constexpr const char* kByNode = "node";
std::vector<std::string> index_by_node(const api::JointInferenceService& service);
/// Services by the node that their first tier names; "": none is named.
inline constexpr const char* kByFirstNode = "first node";
std::vector<std::string> index_by_first_node(const api::JointInferenceService& service);
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
      .template indexes<JointInferenceService>(kByUid, index_by_uid)
      .template indexes<api::Pod>(kPodsOn, index_pods_on);
  inferencemodel::add_indexes(w);
}

/// The service of a pod, from the labels: a Deployment's pods have another owner. Empty: none.
Keys service_of(const api::Pod& pod);
/// Services with a tier that refers to a Model or an InferenceModel of this name, or with a child
/// of this name.
Keys of_model(const meta::ObjectKey& model, const runtime::Caches& caches);
/// Services with a tier that names the node, and services that every node affects.
Keys of_node(const std::string& node, const runtime::Caches& caches);
/// Services with a first tier that may be on the node, or has a pod there. Sorted.
Keys first_on(const std::string& node, const runtime::Caches& caches);

/// The difference of two versions of an EdgeNode, as it matters to services.
struct AgentChange {
  bool of_node = false;           // affects all services of the node
  std::set<std::string> reports;  // keys of models and uids of services with another report
};
AgentChange change_of(const api::EdgeNode& before, const api::EdgeNode& now);
/// True if the versions of a Node mean the same to services: heartbeats do not matter.
bool same_to_services(const api::Node& before, const api::Node& now);

/// Services that the change affects. Null: no such version.
Keys changed_by(const api::EdgeNode* before, const api::EdgeNode* now,
                const runtime::Caches& caches);
Keys changed_by(const api::Node* before, const api::Node* now, const runtime::Caches& caches);

}  // namespace varda::controllers::joint
