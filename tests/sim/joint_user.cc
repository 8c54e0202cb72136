#include "joint_user.h"

namespace varda::sim {

using codec::Json;

namespace {

Json policy(std::uint64_t tenths) {
  const Json parameter =
      Json::object({{"key", "threshold_cross_entropy"}, {"value", "0." + std::to_string(tenths)}});
  return Json::object({{"name", "CrossEntropy"}, {"parameters", Json::array({parameter})}});
}

}  // namespace

/// Points the Model to a new archive.
void JointUser::release(Object& model) {
  const std::string url = archive_of(model.name(), std::to_string(3 + world_.rng().below(3)));
  Json spec =
      Json::object({{"url", url}, {"sha256", Origin::digest(url).hex()}, {"format", "onnx"}});
  model.exists() ? model.patch(std::move(spec)) : model.create(std::move(spec));
}

void JointUser::send_requests() {
  world_.scheduler().note("clients ask", service_.name());
  for (const auto& machine : world_.machines())
    for (std::uint64_t more = 1 + world_.rng().below(5); more > 0; --more)
      answered_ += machine->send_request(key()) ? 1 : 0;
}

void JointUser::delete_pod() {
  const auto pods = world_.cluster().call("GET", pods_path("edgeai.io/job=" + service_.name()));
  if (pods.body["items"].empty()) return;
  const std::string pod = pods.body.at("items/0/metadata/name").as_string();
  world_.scheduler().note("user deletes pod", pod);
  world_.cluster().call("DELETE", "/api/v1/namespaces/default/pods/" + pod);
}

Json JointUser::edge_worker() {
  return Json::object({{"model", Json::object({{"name", small_.name()}})},
                       {"nodeName", world_.edge_machine().name()},
                       {"hardExampleMining", policy(8)}});
}

void JointUser::act() {
  SeededRng& rng = world_.rng();
  if (!service_.exists()) {
    if (!small_.exists()) release(small_);
    if (!big_.exists()) release(big_);
    // The agent counts the last answers of the earlier service's container for this service.
    answered_ = 0;
    for (const auto& machine : world_.machines())
      for (const auto& [uid, container] : machine->containers())
        if (container->model_key == key()) answered_ += container->answered;
    const Json cloud = Json::object({{"model", Json::object({{"name", big_.name()}})}});
    return service_.create(Json::object({{"edgeWorker", edge_worker()}, {"cloudWorker", cloud}}));
  }
  switch (rng.below(9)) {
    case 0:
      return release(small_);
    case 1:
      return release(big_);
    case 2:
      return service_.patch(Json::object(
          {{"edgeWorker", Json::object({{"nodeName", world_.edge_machine().name()}})}}));
    case 3:
      return service_.patch(Json::object(
          {{"edgeWorker", Json::object({{"hardExampleMining", policy(1 + rng.below(9))}})}}));
    case 4:
      return service_.remove();
    case 5:
      return delete_pod();
    default:
      send_requests();
  }
}

std::optional<std::string> JointUser::models_settled() {
  for (const Object* model : {&small_, &big_}) {
    const auto reply = model->get();
    if (auto wrong = model->presence(reply)) return wrong;
    if (!model->exists()) continue;
    const char* const ready =
        reply.body.at("status/metrics").empty() ? "True Registered" : "True Evaluated";
    if (condition(reply.body, "Ready") != ready)
      return model->what() + "Ready is " + condition(reply.body, "Ready");
  }
  return {};
}

std::optional<std::string> JointUser::check_deleted() {
  if (world_.cluster()
          .call("GET",
                "/apis/ai.kubeedge.io/v1alpha1/namespaces/default/inferencemodels/" + child())
          .status != 404)
    return service_.what() + "InferenceModel " + child() + " is left";
  if (count(world_, pods_path("edgeai.io/job=" + service_.name())) > 0)
    return service_.what() + "a pod is left";
  for (const auto& machine : world_.machines())
    for (const auto& [uid, container] : machine->containers())
      if (container->model_key == key())
        return service_.what() + "a container is left on " + machine->name();
  return left_of_cloud_model(world_, child());
}

std::optional<std::string> JointUser::edge_settled(const Json& status) {
  const std::string what = service_.what();
  if (const auto pods = count(world_, pods_path("edgeai.io/job=" + service_.name())); pods != 1)
    return what + std::to_string(pods) + " pods of the first tier";
  const Container* server = nullptr;
  Machine* home = nullptr;
  for (const auto& machine : world_.machines()) {
    for (const auto& [uid, container] : machine->containers()) {
      if (container->model_key != key()) continue;
      if (server != nullptr) return what + "two containers of the first tier";
      server = container.get();
      home = machine.get();
    }
  }
  if (server == nullptr) return what + "no container of the first tier";
  if (home->name() != node())
    return what + "the first tier is on " + home->name() + " and not on " + node();
  return first_tier_works(*home, *server, status);
}

std::optional<std::string> JointUser::first_tier_works(Machine&, const Container& server,
                                                       const Json& status) {
  const std::string what = service_.what();
  if (server.serving != version_of(small_)) return what + "the first tier serves " + server.serving;
  const std::string url = url_of(server.address, server.port);
  if (status["url"].as_string() != url)
    return what + "its URL is " + status["url"].as_string() + " and not " + url;
  const Json& tier = status["tiers"].as_array().at(0);
  if (tier["version"].as_string() != version_of(small_))
    return what + "tier edge has version " + tier["version"].as_string();
  return {};
}

JointUser::TiersReported JointUser::tiers_reported(Machine& home) {
  const auto file = codec::parse_json(home.model_file(key(), "joint.json").value_or("{}"));
  if (!file.ok()) return {};
  return {file->at("tiers/1/url").as_string(),
          file->at("tiers/0/policy/parameters/threshold_cross_entropy").as_string()};
}

std::optional<std::string> JointUser::cloud_settled(const Json& status,
                                                    const TiersReported& reported) {
  const std::string what = service_.what();
  const auto model =
      world_.cluster()
          .call("GET",
                "/apis/ai.kubeedge.io/v1alpha1/namespaces/default/inferencemodels/" + child())
          .body;
  if (model.at("metadata/ownerReferences/0/uid").as_string() != service_.uid())
    return what + "its InferenceModel is not its own";
  const std::string& url = model.at("status/url").as_string();
  if (url.empty()) return what + "its InferenceModel has no URL";
  if (model.at("status/servingVersion").as_string() != version_of(big_))
    return what + "tier cloud serves " + model.at("status/servingVersion").as_string();
  const Json& tier = status["tiers"].as_array().at(1);
  if (tier["url"].as_string() != url)
    return what + "tier cloud has URL " + tier["url"].as_string() + " and not " + url;
  if (reported.cloud_url != url) return what + "its node does not know the URL of tier cloud";
  if (reported.threshold !=
      service_.spec().at("edgeWorker/hardExampleMining/parameters/0/value").as_string())
    return what + "its node does not know the policy";
  return cloud_model_serves(world_, child(), version_of(big_), 1);
}

std::optional<std::string> JointUser::settled() {
  if (auto wrong = models_settled()) return wrong;
  const auto reply = service_.get();
  if (auto wrong = service_.presence(reply)) return wrong;
  if (!service_.exists()) return check_deleted();
  const Json& status = reply.body["status"];
  if (status["tiers"].size() != 2)
    return service_.what() + "its status has " + std::to_string(status["tiers"].size()) + " tiers";
  if (auto wrong = edge_settled(status)) return wrong;
  TiersReported reported;
  for (const auto& machine : world_.machines())
    if (machine->name() == node()) reported = tiers_reported(*machine);
  if (auto wrong = cloud_settled(status, reported)) return wrong;
  for (const char* type : {"Ready", "EdgeReady", "CloudReady"})
    if (const std::string is = condition(reply.body, type); is != "True Serving")
      return service_.what() + type + " is " + is;
  if (const std::int64_t counted = status["inferenceNumber"].as_integer(); counted > answered_)
    return service_.what() + std::to_string(counted) + " inferences are counted of " +
           std::to_string(answered_);
  return {};
}

void JointUser::add_work(const Machine& machine, WorkKeys& keys) const {
  if (service_.exists() && node() == machine.name()) keys.models.insert(key());
}

}  // namespace varda::sim
