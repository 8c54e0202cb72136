// The objects made for an InferenceModel.
#pragma once

#include <string>

#include "api/ai/inference_model.h"
#include "codec/json.h"
#include "controllers/inferencemodel/options.h"

namespace varda::controllers {

/// The edge pod. `server` null: the image way. `model_root` is the node's.
codec::Json make_edge_pod(const api::InferenceModel& model, const std::string& node, const ServerEntry* server,
                          const std::string& model_root);
/// `server` null: the image way.
codec::Json make_deployment(const api::InferenceModel& model, const ServerEntry* server, const InferenceModelOptions& options);
codec::Json make_service(const api::InferenceModel& model);

}  // namespace varda::controllers
