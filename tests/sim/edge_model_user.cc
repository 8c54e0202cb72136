#include "edge_model_user.h"

namespace varda::sim {

using codec::Json;

std::string EdgeModelUser::draw_node() {
  return world_.rng().below(12) == 0 ? "nowhere" : world_.edge_machine().name();
}

void EdgeModelUser::act() {
  SeededRng& rng = world_.rng();
  const std::string& name = model_.name();
  if (!model_.exists()) {
    return model_.create(
        Json::object({{"modelName", name},
                      {"deployToLayer", "edge"},
                      {"frameworkType", "onnx"},
                      {"nodeName", draw_node()},
                      {"servingPort", port_},
                      {"manifest", Json::array({manifest_item(name, "3"), manifest_item(name, "4"),
                                                manifest_item(name, "5")})},
                      {"targetVersion", std::to_string(3 + rng.below(3))}}));
  }
  switch (rng.below(8)) {
    case 0:
    case 1:
    case 2:
      return model_.patch(Json::object({{"targetVersion", std::to_string(3 + rng.below(3))}}));
    case 3:
      return model_.patch(Json::object({{"nodeName", draw_node()}}));
    case 4:
      return model_.patch(Json::object({{"replicas", static_cast<std::int64_t>(rng.below(2))}}));
    case 5:
    case 6:
      return model_.remove();
    default:
      world_.scheduler().note("user deletes the pod of", name);
      world_.cluster().call("DELETE", "/api/v1/namespaces/default/pods/" + name);
  }
}

std::optional<std::string> EdgeModelUser::settled() {
  const std::string what = model_.what();
  const auto reply = model_.get();
  const auto pod = world_.cluster().call("GET", "/api/v1/namespaces/default/pods/" + model_.name());
  std::size_t running = 0;
  const Machine* home = nullptr;
  for (const auto& machine : world_.machines()) {
    if (model_.exists() && machine->name() == node()) home = machine.get();
    for (const auto& [uid, container] : machine->containers())
      if (container->name == model_.name()) ++running;
  }
  if (!model_.exists() || home == nullptr || !wants_pod()) {
    if (pod.status != 404) return what + "it shall have no pod";
    if (running > 0) return what + "a container is left";
    if (auto wrong = model_.presence(reply)) return wrong;
    if (!model_.exists()) return {};
    if (!reply.body.at("status/url").is_null()) return what + "nothing runs and it has a URL";
    const std::string ready = condition(reply.body, "Ready");
    const std::string wanted = home == nullptr ? "False NodeNotFound" : "False ScaledToZero";
    return ready == wanted ? std::nullopt
                           : std::optional(what + "Ready is " + ready + " and not " + wanted);
  }
  const Json& object = reply.body;
  if (auto wrong = model_.presence(reply)) return wrong;
  const std::string target_ready = condition(object, "TargetVersionReady");
  if (world_.origin().broken.contains(archive_of(model_.name(), target()))) {
    // The archive is unavailable: an earlier version continues to serve, and a condition reports
    // the failure.
    if (target_ready != "False DownloadFailed")
      return what + "TargetVersionReady is " + target_ready + " and not False DownloadFailed";
    return {};
  }
  const std::string url = url_of(home->address(), port_);
  if (running != 1) return what + std::to_string(running) + " containers run";
  if (target_ready != "True Serving") return what + "TargetVersionReady is " + target_ready;
  if (condition(object, "Ready") != "True Serving")
    return what + "Ready is " + condition(object, "Ready");
  if (object.at("status/url").as_string() != url)
    return what + "its URL is " + object.at("status/url").as_string();
  if (object.at("status/servingVersion").as_string() != target())
    return what + "it serves " + object.at("status/servingVersion").as_string() + " and not " +
           target();
  for (const auto& [uid, container] : home->containers())
    if (container->name == model_.name() && container->serving != target())
      return what + "its server serves " + container->serving + " and not " + target();
  return {};
}

void EdgeModelUser::add_work(const Machine& machine, WorkKeys& keys) const {
  if (model_.exists() && node() == machine.name()) keys.models.insert("default/" + model_.name());
}

}  // namespace varda::sim
