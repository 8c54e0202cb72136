// The objects of an InferenceModel: Pod, Deployment and Service.
#pragma once

#include <string>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/core/pod.h"
#include "codec/json.h"
#include "controllers/inferencemodel/inferencemodel.h"
#include "hosting/servers.h"

namespace varda::controllers::inferencemodel {

/// host or hostport: the model's choice, else the operator's.
const std::string& edge_network(const api::InferenceModel& model, const hosting::Options& options);
/// The edge pod. `server` null: the model names an image. `roots` are the node's.
codec::Json make_edge_pod(const api::InferenceModel& model, const std::string& node,
                          const hosting::ServerEntry* server, const ServerDirectories& roots,
                          const hosting::Options& options);
/// `server` null: the model names an image.
codec::Json make_deployment(const api::InferenceModel& model, const hosting::ServerEntry* server,
                            const hosting::Options& options);
codec::Json make_service(const api::InferenceModel& model);

/// `text` with {modelName}, {port} and {version} filled in.
std::string fill_in(std::string text, const api::InferenceModel& model);

}  // namespace varda::controllers::inferencemodel
