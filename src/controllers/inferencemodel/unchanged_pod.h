// Decides whether the present pod of an edge model stays. It stays while the user's request is the
// same. An upgraded operator, or one with another table of servers, would make other pods. It must
// not replace working pods, least of all those of a whole site at once.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "api/ai/inference_model.h"
#include "api/core/pod.h"
#include "api/edgeai/edge_node.h"
#include "hosting/servers.h"

namespace varda::controllers::inferencemodel {

/// Annotations of an edge pod, as JSON: the model's request, and how its server reads and reports
/// versions.
inline constexpr std::string_view kRequestAnnotation = "edgeai.io/request";
inline constexpr std::string_view kServerAnnotation = "edgeai.io/server";

/// Adds both annotations to `wanted`, the pod as it would be made now for `model` on `node`.
/// `server` null: the model names an image.
void annotate(const api::InferenceModel& model, const std::string& node,
              const hosting::ServerEntry* server, codec::Json& wanted);

/// The pod that stays: `object` is its last applied state, with the metadata wanted now. Nothing:
/// the pod must go, or cannot be kept. `wanted` has the annotations. `node_answers`: the pod's
/// status is current.
struct UnchangedPod {
  codec::Json object;
  bool outdated = false;  // a pod made now would differ
};
std::optional<UnchangedPod> unchanged_pod_of(const api::InferenceModel& model,
                                             const std::string& node, const api::Pod& pod,
                                             const hosting::ServerEntry* server,
                                             const codec::Json& wanted, bool node_answers);

/// Layout, extra files and status query (in `serving`, without a URL) of the server in `pod`. The
/// values come from the pod's annotation, else from the server table. `pod` null: no pod exists.
api::EdgeModel server_traits(const api::Pod* pod, const hosting::ServerEntry* server);

}  // namespace varda::controllers::inferencemodel
