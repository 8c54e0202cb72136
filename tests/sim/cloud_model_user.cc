#include "cloud_model_user.h"

namespace varda::sim {

using codec::Json;

void CloudModelUser::act() {
  SeededRng& rng = world_.rng();
  const std::string& name = model_.name();
  if (!model_.exists()) {
    return model_.create(
        Json::object({{"modelName", name},
                      {"deployToLayer", "cloud"},
                      {"frameworkType", "onnx"},
                      {"replicas", static_cast<std::int64_t>(1 + rng.below(2))},
                      {"service", Json::object({{"type", "NodePort"}})},
                      {"manifest", Json::array({manifest_item(name, "3"), manifest_item(name, "4"),
                                                manifest_item(name, "5")})},
                      {"targetVersion", std::to_string(3 + rng.below(3))}}));
  }
  switch (rng.below(6)) {
    case 0:
    case 1:
      return model_.patch(Json::object({{"targetVersion", std::to_string(3 + rng.below(3))}}));
    case 2:
      return model_.patch(Json::object({{"replicas", static_cast<std::int64_t>(rng.below(3))}}));
    case 3:
    case 4:
      return model_.remove();
    default: {
      const auto pods =
          world_.cluster().call("GET", pods_path("edgeai.io/inference-model=" + name));
      if (pods.body["items"].empty()) return;
      const std::string pod = pods.body.at("items/0/metadata/name").as_string();
      world_.scheduler().note("user deletes pod", pod);
      world_.cluster().call("DELETE", "/api/v1/namespaces/default/pods/" + pod);
    }
  }
}

std::optional<std::string> CloudModelUser::settled() {
  const std::string what = model_.what();
  const auto reply = model_.get();
  if (auto wrong = model_.presence(reply)) return wrong;
  if (!model_.exists()) return left_of_cloud_model(world_, model_.name());
  const Json& status = reply.body["status"];
  const std::string target = model_.spec()["targetVersion"].as_string();
  const std::int64_t replicas = model_.spec()["replicas"].as_integer(1);
  const std::string ready = condition(reply.body, "Ready"),
                    target_ready = condition(reply.body, "TargetVersionReady");
  if (replicas == 0) {
    if (ready != "False ScaledToZero") return what + "Ready is " + ready;
    if (!status["url"].is_null()) return what + "nothing runs and it has a URL";
    return cloud_model_serves(world_, model_.name(), "", 0);
  }
  if (world_.origin().broken.contains(archive_of(model_.name(), target))) {
    // Pods of an earlier version continue to serve.
    return target_ready == "False DownloadFailed"
               ? std::nullopt
               : std::optional(what + "TargetVersionReady is " + target_ready);
  }
  if (ready != "True Serving") return what + "Ready is " + ready;
  if (target_ready != "True Serving") return what + "TargetVersionReady is " + target_ready;
  if (status["servingVersion"].as_string() != target)
    return what + "it serves " + status["servingVersion"].as_string();
  if (status["readyReplicas"].as_integer() != replicas)
    return what + std::to_string(status["readyReplicas"].as_integer()) + " ready replicas";
  const auto service =
      world_.cluster().call("GET", "/api/v1/namespaces/default/services/" + model_.name());
  const std::string url =
      url_of("127.0.0.1", service.body.at("spec/ports/0/nodePort").as_integer());
  if (status["url"].as_string() != url)
    return what + "its URL is " + status["url"].as_string() + " and not " + url;
  return cloud_model_serves(world_, model_.name(), target, replicas);
}

}  // namespace varda::sim
