#include "controllers/inferencemodel/unchanged_pod.h"

#include <utility>

#include "controllers/inferencemodel/objects.h"
#include "hosting/pod_settings.h"
#include "runtime/last_applied.h"
#include "runtime/writer.h"

namespace varda::controllers::inferencemodel {

namespace {

using api::InferenceModel;
using codec::Json;

constexpr std::string_view kNumberedSuffix = "/.numbered";  // artifact/numbered_view.h

// Only members that the user has set: a member that a later build adds must not change earlier
// pods.
Json request_of(const InferenceModel& model, const std::string& node) {
  const api::InferenceModelSpec& spec = model.spec;
  Json request = Json::object({{"node", node}, {"port", spec.port()}});
  if (spec.from_image()) {
    request.set("image", spec.image);
  } else {
    request.set("framework", spec.framework_type);
    request.set("modelName", spec.model_name);
  }
  for (const auto& [name, value] : hosting::requested_settings(spec).as_object())
    request.set(name, value);
  if (!spec.edge_network.empty()) request.set("edgeNetwork", spec.edge_network);
  if (spec.samples) request.set("samples", true);
  if (Json security = requested_security(model); !security.is_null())
    request.set("security", std::move(security));
  return request;
}

// Null: the pod has no such annotation, or an unreadable one.
Json annotation(const api::Pod& pod, std::string_view name) {
  const auto found = pod.metadata.annotations.find(std::string(name));
  if (found == pod.metadata.annotations.end()) return {};
  auto value = codec::parse_json(found->second);
  return value.ok() && value->is_object() ? std::move(*value) : Json();
}

// "registry:5000/a/varda-serve:0.1.0@sha256:..." -> "varda-serve"
std::string_view image_name(std::string_view image) {
  image = image.substr(0, image.find('@'));
  if (const auto slash = image.rfind('/'); slash != std::string_view::npos)
    image.remove_prefix(slash + 1);
  return image.substr(0, image.find(':'));
}

const Json& first(const Json& list) {
  static const Json none;
  return list.empty() ? none : list.as_array().front();
}

// The model's directory on the node; "": the model names an image. The server decides how the
// directory appears in the container.
std::string files_of(const Json& spec) {
  std::string path = first(spec["volumes"]).at("hostPath/path").as_string();
  if (path.ends_with(kNumberedSuffix)) path.resize(path.size() - kNumberedSuffix.size());
  return path;
}

// Compares a pod of an early build, which has no kRequestAnnotation.
bool fits(const InferenceModel& model, const Json& is, const Json& desired) {
  const Json &server = first(is["containers"]), &wanted = first(desired["containers"]);
  const std::string &image = server["image"].as_string(),
                    &wanted_image = wanted["image"].as_string();
  if (model.spec.from_image() ? image != wanted_image
                              : image_name(image) != image_name(wanted_image))
    return false;
  if (first(server["ports"])["containerPort"] != first(wanted["ports"])["containerPort"])
    return false;
  return model.spec.edge_network.empty() ||
         is["hostNetwork"].as_bool() == desired["hostNetwork"].as_bool();
}

Json to_json(const api::EdgeModel& traits) {
  api::EdgeNodeSpec spec;
  spec.models.push_back(traits);
  Json object = first(spec.to_json()["models"]);
  object.erase("key");
  return object;
}

api::EdgeModel traits_of(const hosting::ServerEntry* server) {
  api::EdgeModel traits;
  traits.layout = server == nullptr ? api::EdgeModel::kTarget : server->layout;
  if (server == nullptr) return traits;
  traits.extra_files = server->extra_files;
  if (server->status_query != api::EdgeStatusQuery{})
    traits.serving.emplace().status_query = server->status_query;
  return traits;
}

// The traits in the pod's annotation.
std::optional<api::EdgeModel> noted_traits(const api::Pod& pod) {
  Json object = annotation(pod, kServerAnnotation);
  if (object.is_null()) return {};
  object.set("key", "pod");
  const auto node = api::EdgeNode::from_json(
      Json::object({{"metadata", Json::object({{"name", "node"}})},
                    {"spec", Json::object({{"models", Json::array({object})}})}}));
  if (!node.ok() || node->spec.models.size() != 1) return {};
  return node->spec.models.front();
}

}  // namespace

void annotate(const InferenceModel& model, const std::string& node,
              const hosting::ServerEntry* server, Json& wanted) {
  Json& annotations = wanted.make("metadata/annotations");
  annotations.set(kRequestAnnotation, codec::write_json(request_of(model, node)));
  if (server != nullptr)
    annotations.set(kServerAnnotation, codec::write_json(to_json(traits_of(server))));
}

std::optional<UnchangedPod> unchanged_pod_of(const InferenceModel& model, const std::string& node,
                                             const api::Pod& pod,
                                             const hosting::ServerEntry* server, const Json& wanted,
                                             bool node_answers) {
  const Json applied = runtime::last_applied(pod.metadata);
  if (applied.is_null() || pod.metadata.deleting() || pod.ended()) return {};
  if (!pod.spec.node_name.empty() && pod.spec.node_name != node) return {};
  if (runtime::without_metadata(applied) == runtime::without_metadata(wanted))
    return UnchangedPod{wanted, false};
  // No container has started, so the pod serves no client. A pod made now may fix the cause.
  const bool waits = pod.status.phase.empty() || pod.status.phase == "Pending";
  if (pod.spec.node_name.empty() || (waits && node_answers)) return {};
  if (files_of(applied["spec"]) != files_of(wanted["spec"])) return {};
  const Json request = annotation(pod, kRequestAnnotation);
  if (request.is_null() ? !fits(model, applied["spec"], wanted["spec"])
                        : request != request_of(model, node))
    return {};
  Json object = applied;
  object.set("metadata", wanted["metadata"]);
  object.make("metadata")
      .set("uid", pod.metadata.uid);  // a gone pod must not be made again like this
  if (server != nullptr) {
    object.make("metadata/annotations")
        .set(kServerAnnotation, codec::write_json(to_json(server_traits(&pod, server))));
  }
  return UnchangedPod{std::move(object), true};
}

api::EdgeModel server_traits(const api::Pod* pod, const hosting::ServerEntry* server) {
  api::EdgeModel traits = traits_of(server);
  // A pod without volumes was made for an image, and is being replaced.
  if (pod == nullptr || pod->spec.volumes.empty()) return traits;
  if (auto noted = noted_traits(*pod)) return std::move(*noted);
  // The mount shows the layout. A table entry with another layout is not about this server.
  bool numbered = false;
  for (const Json& volume : pod->spec.volumes)
    numbered |= volume.at("hostPath/path").as_string().ends_with(kNumberedSuffix);
  const std::string_view layout = numbered ? api::EdgeModel::kNumbered : api::EdgeModel::kTarget;
  if (traits.layout == layout) return traits;
  traits = {};
  traits.layout = layout;
  return traits;
}

}  // namespace varda::controllers::inferencemodel
