// Whether the pod that an edge model has stays. It does as long as the user asks the same of it: an operator that was upgraded, or
// got another table of servers, makes other pods and yet replaces none that works, least of all those of a whole site at once.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "api/ai/inference_model.h"
#include "api/core/pod.h"
#include "api/edgeai/edge_node.h"
#include "controllers/inferencemodel/options.h"

namespace varda::controllers {

/// On an edge pod: what its model asked of it, as JSON, and how its server is told and tells versions.
inline constexpr std::string_view kAskedAnnotation = "edgeai.io/asked";
inline constexpr std::string_view kServerAnnotation = "edgeai.io/server";

/// `wanted`, a pod as it would be made now for `model` on `node`, with both annotations. `server` null: the image way.
void annotate(const api::InferenceModel& model, const std::string& node, const ServerEntry* server, codec::Json& wanted);

/// The pod stays: `object` is its wish of then, with the metadata of now. Absent: it goes, or there is none to keep.
/// `wanted` is annotated. `node_answers`: what the pod's status says is of now.
struct KeptPod {
  codec::Json object;
  bool outdated = false;  // it differs from what would be made now
};
std::optional<KeptPod> keep_pod(const api::InferenceModel& model, const std::string& node, const api::Pod& pod,
                                const ServerEntry* server, const codec::Json& wanted, bool node_answers);

/// The layout, the files beside it and the reading (in `serving`, without a URL) of the server that runs in `pod`: those it was
/// made with, else the table's. `pod` null: there is none.
api::EdgeModel server_traits(const api::Pod* pod, const ServerEntry* server);

}  // namespace varda::controllers
