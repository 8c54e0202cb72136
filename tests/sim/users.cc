#include "users.h"

#include "base/check.h"

namespace varda::sim {

using codec::Json;

namespace {

const std::string kModels = "/apis/ai.kubeedge.io/v1alpha1/namespaces/default/inferencemodels";
const std::string kDeployments = "/apis/apps/v1/namespaces/default/deployments";

Json version(const std::string& model, const std::string& name) {
  const std::string url = "http://archives/" + model + "-" + name;
  return Json::object({{"version", name}, {"downloadURL", url}, {"sha256sum", Origin::digest(url).hex()}});
}

}  // namespace

void Users::on_model(Wish& wish) {
  SeededRng& rng = world_.rng();
  Scheduler& scheduler = world_.scheduler();
  Cluster& cluster = world_.cluster();
  const std::string target = kModels + "/" + wish.name;
  const auto learn = [&wish](const Cluster::Reply& reply) {
    CHECK(reply.status == 200 || reply.status == 201);
    wish.exists = true;
    wish.spec = reply.body.at("spec");
    wish.uid = reply.body.at("metadata/uid").as_string();
  };
  const auto node = [this, &rng] { return rng.below(12) == 0 ? std::string("nowhere") : world_.any_machine().name(); };
  if (!wish.exists) {
    Json spec =
        Json::object({{"modelName", wish.name},
                      {"deployToLayer", "edge"},
                      {"frameworkType", "onnx"},
                      {"nodeName", node()},
                      {"servingPort", wish.port},
                      {"manifest", Json::array({version(wish.name, "3"), version(wish.name, "4"), version(wish.name, "5")})},
                      {"targetVersion", std::to_string(3 + rng.below(3))}});
    const Json object = Json::object({{"apiVersion", "ai.kubeedge.io/v1alpha1"},
                                      {"kind", "InferenceModel"},
                                      {"metadata", Json::object({{"name", wish.name}, {"namespace", "default"}})},
                                      {"spec", std::move(spec)}});
    scheduler.note("user creates", wish.name);
    learn(cluster.call("POST", kModels, object));
    return;
  }
  const auto patch = [&](Json spec) {
    scheduler.note("user patches", wish.name + " " + codec::write_json(spec));
    // What controllers see of it must be what the user was told: the wish is known before the next step.
    learn(cluster.call("PATCH", target, Json::object({{"spec", std::move(spec)}}), "application/merge-patch+json"));
  };
  switch (rng.below(8)) {
    case 0:
    case 1:
    case 2:
      patch(Json::object({{"targetVersion", std::to_string(3 + rng.below(3))}}));
      break;
    case 3:
      patch(Json::object({{"nodeName", node()}}));
      break;
    case 4:
      patch(Json::object({{"replicas", static_cast<std::int64_t>(rng.below(2))}}));
      break;
    case 5:
    case 6:
      scheduler.note("user deletes", wish.name);
      CHECK(cluster.call("DELETE", target).status == 200);
      wish.exists = false;
      break;
    default:
      scheduler.note("user deletes the pod of", wish.name);
      cluster.call("DELETE", "/api/v1/namespaces/default/pods/" + wish.name);
  }
}

void Users::on_deployment() {
  SeededRng& rng = world_.rng();
  Scheduler& scheduler = world_.scheduler();
  Cluster& cluster = world_.cluster();
  std::optional<int>& replicas = world_.deployment();
  if (!replicas) {
    replicas = static_cast<int>(1 + rng.below(2));
    const Json labels = Json::object({{"app", "web"}});
    const Json container = Json::object({{"name", "web"}, {"image", "web"}});
    const Json object = Json::object(
        {{"apiVersion", "apps/v1"},
         {"kind", "Deployment"},
         {"metadata", Json::object({{"name", "web"}, {"namespace", "default"}})},
         {"spec",
          Json::object({{"replicas", *replicas},
                        {"selector", Json::object({{"matchLabels", labels}})},
                        {"template", Json::object({{"metadata", Json::object({{"labels", labels}})},
                                                   {"spec", Json::object({{"containers", Json::array({container})}})}})}})}});
    scheduler.note("user creates a Deployment");
    CHECK(cluster.call("POST", kDeployments, object).status == 201);
    return;
  }
  replicas = static_cast<int>(rng.below(4));
  scheduler.note("user scales the Deployment");
  CHECK(cluster
            .call("PATCH", kDeployments + "/web", Json::object({{"spec", Json::object({{"replicas", *replicas}})}}),
                  "application/merge-patch+json")
            .status == 200);
}

void Users::act() {
  if (world_.server_down()) return;
  if (with_deployment_ && world_.rng().below(3) == 0) {
    on_deployment();
  } else {
    on_model(world_.wishes()[world_.rng().below(world_.wishes().size())]);
  }
  // Each answer is compared with the events up to it, before the user asks for the next thing.
  if (auto wrong = world_.checker().after_step()) world_.fail(std::move(*wrong));
}

void Users::begin() {
  for (Wish& wish : world_.wishes())
    if (world_.rng().below(4) > 0) on_model(wish);
  if (with_deployment_) on_deployment();
  if (auto wrong = world_.checker().after_step()) world_.fail(std::move(*wrong));
}

}  // namespace varda::sim
