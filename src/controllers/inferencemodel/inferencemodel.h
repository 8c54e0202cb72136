// InferenceModel for other folders: the controller, and what kinds with their own servers use.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/core/pod.h"
#include "api/edgeai/edge_node.h"
#include "codec/json.h"
#include "hosting/kind_controllers.h"
#include "hosting/model_archive.h"
#include "hosting/node_index.h"
#include "hosting/port_claims.h"
#include "hosting/servers.h"
#include "runtime/controller.h"
#include "runtime/manager.h"

namespace varda::controllers::inferencemodel {

/// Adds the controller. `manager`, and `jobs`, the kinds with workers, outlive the result.
std::unique_ptr<hosting::KindControllers> add(runtime::Manager& manager,
                                              const hosting::Options& options,
                                              std::vector<const hosting::JobWork*> jobs);

/// Models with a modelRef, by the key of the named Model as text, or "NAMESPACE/" with a selector.
inline constexpr const char* kByModelRef = "modelRef";
std::vector<std::string> index_by_model_ref(const api::InferenceModel& model);
/// Models whose modelRef the Model may affect.
std::vector<meta::ObjectKey> models_referring_to(const meta::ObjectKey& model,
                                                 const runtime::Caches& caches);

/// True if the reference is to this Model of the same namespace, or its selector matches the Model.
bool may_choose(const api::ModelRef& ref, const hosting::AnyModel& model);

/// The frameworkType whose server runs the model. At the edge a frozen graph among the models of
/// tensorflow has the server of pb. The node's report on the exposed version decides; without a
/// report, the present pod. `node` and `pod` may be null.
std::string served_framework(const api::InferenceModel& model, const api::EdgeNode* node,
                             const api::Pod* pod);

/// The work of the agent on the model's node; nothing: Varda manages no files there. `server` is
/// the table's entry for served_framework(); null (no entry): as for varda-serve. `keys` null:
/// signatures are not checked. Else the work has no version that `keys` refuses, so a refused
/// target does not replace the version that the node exposes.
std::optional<api::EdgeModel> work_for(const api::InferenceModel& model, const api::EdgeNode& node,
                                       const api::Pod* pod, const hosting::ServerEntry* server,
                                       const hosting::ModelKeys* keys);

/// The edge model's own pod; null: none.
const api::Pod* edge_pod(const api::InferenceModel& model,
                         const std::vector<std::shared_ptr<const api::Pod>>& pods);

/// The part of spec.security that replaces the pod when it changes. Null: the port is open.
codec::Json requested_security(const api::InferenceModel& model);
/// Further arguments of a server that calls later tiers, which have the same security.
std::vector<std::string> tier_arguments(const api::ModelSecurity& security);
/// Directories of the node for one server.
struct ServerDirectories {
  std::string model;    // the model's versions
  std::string samples;  // kept samples; "": the node keeps none
};
/// The content of an edge pod without its placement: the server's container, its network (host,
/// hostport), the directories on the node, and the user's settings. `server` null: the model
/// names an image, and has no directory.
api::PodSpec edge_server(const api::InferenceModel& model, const hosting::ServerEntry* server,
                         const std::string& network, const ServerDirectories& directories);

/// The port that an edge model has or wants on its node; nothing: none yet. A child's port belongs
/// to the object that controls it.
std::optional<hosting::PortClaim> port_claim(const api::InferenceModel& model);

/// Models of the edge layer, by the node that they name, and by their present node.
inline constexpr const char* kByNode = "edge node";
std::vector<std::string> index_by_node(const api::InferenceModel& model);

/// Models of the edge layer that name no node, by their selector (hosting::selector_values()).
inline constexpr const char* kBySelector = "selector";
std::vector<std::string> index_by_selector(const api::InferenceModel& model);
/// Models of the edge layer by the SHA-256 of each archive in the manifest.
inline constexpr const char* kByDigest = "sha256";
std::vector<std::string> index_by_digest(const api::InferenceModel& model);
/// Models of the edge layer that are on the node or may be, in the order of their keys. `labels`
/// are the node's labels.
std::vector<std::shared_ptr<const api::InferenceModel>> models_near(
    const std::string& node, const std::map<std::string, std::string>& labels,
    const runtime::Caches& caches);
/// Declares the indexes that other folders read.
template <runtime::Object T>
void add_indexes(runtime::Watches<T>& w) {
  hosting::index_nodes(w);
  w.template indexes<api::InferenceModel>(kByNode, index_by_node)
      .template indexes<api::InferenceModel>(kBySelector, index_by_selector)
      .template indexes<api::InferenceModel>(kByDigest, index_by_digest);
}

/// Pods of models, by node.
inline constexpr const char* kOfModelsOn = "of models on";
std::vector<std::string> index_model_pods_by_node(const api::Pod& pod);

}  // namespace varda::controllers::inferencemodel
