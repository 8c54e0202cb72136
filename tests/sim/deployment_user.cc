#include "deployment_user.h"

namespace varda::sim {

using codec::Json;

void DeploymentUser::act() {
  SeededRng& rng = world_.rng();
  if (deployment_.exists())
    return deployment_.patch(Json::object({{"replicas", static_cast<std::int64_t>(rng.below(4))}}));
  const Json labels = Json::object({{"app", "web"}});
  const Json container = Json::object({{"name", "web"}, {"image", "web"}});
  deployment_.create(Json::object(
      {{"replicas", static_cast<std::int64_t>(1 + rng.below(2))},
       {"selector", Json::object({{"matchLabels", labels}})},
       {"template",
        Json::object({{"metadata", Json::object({{"labels", labels}})},
                      {"spec", Json::object({{"containers", Json::array({container})}})}})}}));
}

std::optional<std::string> DeploymentUser::settled() {
  const auto live = deployment_.get();
  if (auto wrong = deployment_.presence(live)) return wrong;
  if (!deployment_.exists()) return {};
  const std::int64_t requested = deployment_.spec()["replicas"].as_integer();
  const std::string what = "Deployment web with " + std::to_string(requested) + " replicas: ";
  for (const char* member : {"replicas", "readyReplicas", "availableReplicas"})
    if (const std::int64_t reported = live.body["status"][member].as_integer(0);
        reported != requested)
      return what + "status." + member + " is " + std::to_string(reported);
  if (const auto pods = static_cast<std::int64_t>(count(world_, pods_path("app=web")));
      pods != requested)
    return what + std::to_string(pods) + " pods";
  std::int64_t running = 0;
  for (const auto& machine : world_.machines())
    for (const auto& [uid, container] : machine->containers())
      running += container->name.starts_with("web-") ? 1 : 0;
  if (running != requested) return what + std::to_string(running) + " containers run";
  return {};
}

}  // namespace varda::sim
