// The objects made for an InferenceModel.
#pragma once

#include <string>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/core/pod.h"
#include "codec/json.h"
#include "controllers/inferencemodel/options.h"

namespace varda::controllers {

/// host or hostport, as the model or else the operator has it.
const std::string& edge_network(const api::InferenceModel& model, const InferenceModelOptions& options);
/// Of its server's container; amounts in canonical form. Null: none.
codec::Json resources_of(const api::InferenceModel& model);
/// The part of spec.security that replaces the pod when it changes. Null: the port is open.
codec::Json security_asked(const api::InferenceModel& model);
/// Further arguments of a server that asks tiers above it, which are closed in the same way.
std::vector<std::string> upper_tier_arguments(const api::ModelSecurity& security);
/// What is in an edge pod, but not where it runs: the server's container, its network (host, hostport) and, with a server of ours,
/// the model's directory on the node. `server` null: the image way.
api::PodSpec edge_server(const api::InferenceModel& model, const ServerEntry* server, const std::string& network,
                         const std::string& directory);
/// The edge pod. `server` null: the image way. `model_root` is the node's.
codec::Json make_edge_pod(const api::InferenceModel& model, const std::string& node, const ServerEntry* server,
                          const std::string& model_root, const InferenceModelOptions& options);
/// `server` null: the image way.
codec::Json make_deployment(const api::InferenceModel& model, const ServerEntry* server, const InferenceModelOptions& options);
codec::Json make_service(const api::InferenceModel& model);

/// `text` with {modelName}, {port} and {version} filled in.
std::string fill_in(std::string text, const api::InferenceModel& model);

}  // namespace varda::controllers
