#include "worker_user.h"

#include <algorithm>

namespace varda::sim {

using codec::Json;

/// The worker's key, from the pod name in docs/guides/workers.md.
std::string WorkerUser::worker_key(const std::string& node) const {
  return "default/" + service().name() + "-edge-" + codec::Sha256::of(node).hex().substr(0, 12);
}

Json WorkerUser::edge_worker() {
  Json out = JointUser::edge_worker();
  const Json container = Json::object({{"image", "program"}});
  out.set("workerSpec", Json::object({{"containers", Json::array({container})}}));
  return out;
}

void WorkerUser::act() {
  if (!service().exists() || world().rng().below(3) > 0) return JointUser::act();
  world().scheduler().note("a worker finds a result", service().name());
  ++found_;
  for (const auto& machine : world().machines()) (void)machine->evaluate(key(), found_);
}

std::optional<std::string> WorkerUser::first_tier_works(Machine& home, const Container&,
                                                        const Json&) {
  const std::string what = service().what();
  const Json read = home.assignment(worker_key(home.name()));
  if (read.at("model/version").as_string() != version_of(small()))
    return what + "its worker was told version \"" + read.at("model/version").as_string() + "\"";
  return result_arrived(home);
}

/// Checks that the Model's status has the result that the agent acknowledged.
std::optional<std::string> WorkerUser::result_arrived(Machine& home) {
  const auto reply = small().get();
  int shown = 0;
  for (const Json& metric : reply.body.at("status/metrics").as_array())
    if (metric["key"].as_string() == "accuracy") shown = std::stoi(metric["value"].as_string());
  std::vector<int> possible;
  bool elsewhere = false;
  for (const auto& machine : world().machines()) {
    for (const auto& [worker, reported] : machine->reported()) {
      if (worker.second == service().uid() && machine.get() == &home && reported.acknowledged &&
          !reported.unassigned)
        possible = reported.possible;
      elsewhere = elsewhere || (worker.second == service().uid() && machine.get() != &home);
    }
  }
  // Results of two nodes arrive in any order.
  if (possible.empty() || elsewhere) return {};
  if (std::find(possible.begin(), possible.end(), shown) == possible.end())
    return service().what() + "its Model shows accuracy " + std::to_string(shown) + ", " +
           std::to_string(possible.front()) + " was acknowledged";
  return {};
}

JointUser::TiersReported WorkerUser::tiers_reported(Machine& home) {
  const Json read = home.assignment(worker_key(home.name()));
  return {read.at("cloud/url").as_string(),
          read.at("hardExampleMining/parameters/0/value").as_string()};
}

void WorkerUser::add_work(const Machine& machine, WorkKeys& keys) const {
  JointUser::add_work(machine, keys);
  if (service().exists() && node() == machine.name())
    keys.workers.insert(worker_key(machine.name()));
}

}  // namespace varda::sim
