#include "schedule.h"

#include <algorithm>

#include "base/check.h"

namespace varda::sim {

using codec::Json;
using std::chrono::milliseconds, std::chrono::seconds, std::chrono::minutes;

namespace {

const std::string kModels = "/apis/ai.kubeedge.io/v1alpha1/namespaces/default/inferencemodels";
const std::string kDeployments = "/apis/apps/v1/namespaces/default/deployments";
// Nothing takes longer than this to heal: downloads and queues wait minutes at most between attempts.
constexpr minutes kHealing{30};
constexpr seconds kQuiet{15};
// Far beyond what any schedule takes. More is work that goes on without end: somebody is always due, and time never goes on.
constexpr std::uint64_t kStepsMax = 50'000;
constexpr std::uint64_t kStepsFair = 5'000;  // most schedules end before 1,000

Json version(const std::string& model, const std::string& name) {
  const std::string url = "http://archives/" + model + "-" + name;
  return Json::object({{"version", name}, {"downloadURL", url}, {"sha256sum", Origin::digest(url).hex()}});
}

}  // namespace

Schedule::Schedule(Cluster& cluster, std::uint64_t seed, const Mutations& mutations, Trace trace)
    : cluster_((cluster.begin(seed), cluster)),
      seed_(seed),
      scheduler_(cluster.clock(), rng_),
      network_(scheduler_, cluster.store()),
      mutations_(mutations),
      checker_(cluster, machines_, wishes_, origin_) {
  rng_.seed(seed * 0x9e3779b97f4a7c15ULL + 1);
  scheduler_.keep_trace(trace == Trace::kKeep);
  network_.serve(cluster.server());
  network_.lose_deletions(mutations.deletions_are_lost);
  const auto due = std::make_shared<std::pair<store::Revision, std::optional<SteadyTime>>>(-1, std::nullopt);
  scheduler_.add(server_, {"controllers",
                           [this, due]() -> std::optional<SteadyTime> {
                             if (server_back_) return std::nullopt;
                             return cluster_.store().revision() != due->first ? SteadyTime::min() : due->second;
                           },
                           [this, due](const Context&) {
                             due->first = cluster_.store().revision();
                             due->second = cluster_.server()->step_controllers();
                             if (!due->second) due->second = SteadyTime::min();
                           }});
  draw();
}

Schedule::~Schedule() {
  for (const auto& one : operators_) one->stop();
  machines_.clear();
  scheduler_.kill(server_);
}

// Swarm testing (Groce et al., ISSTA 2012): a schedule with every kind of trouble at once hides what needs only one of them, so
// each draws which kinds it has.
void Schedule::draw() {
  const auto maybe = [this](std::uint32_t most) -> std::uint32_t {
    return rng_.below(3) == 0 ? 1 + static_cast<std::uint32_t>(rng_.below(most)) : 0;
  };
  hazards_.network = {.refuse = maybe(150),
                      .lose_answer = maybe(150),
                      .repeat = maybe(200),
                      .server_error = maybe(150),
                      .delay = maybe(300),
                      .watch_break = maybe(100),
                      .watch_end = maybe(100),
                      .hold = maybe(300)};
  hazards_.user = 10 + static_cast<std::uint32_t>(rng_.below(60));
  hazards_.operator_restart = maybe(10);
  hazards_.agent_restart = maybe(15);
  hazards_.reboot = maybe(8);
  hazards_.link = maybe(15);
  hazards_.crash = maybe(15);
  hazards_.server_restart = rng_.below(64) == 0 ? 5 : 0;  // reading its kinds again takes longer than a whole schedule
  hazards_.compaction = maybe(20);
  hazards_.jump = maybe(10);
  hazards_.objects_deleted = rng_.below(6) == 0 ? 6 : 0;
  origin_.failures = maybe(300);
  with_deployment_ = rng_.below(8) == 0;

  const bool elected = rng_.below(8) == 0;
  const auto add_operator = [this](const char* name, Operator::Role role) {
    operators_.push_back(std::make_unique<Operator>(name, role, cluster_, network_, scheduler_));
    operators_.back()->start();
  };
  if (elected) {
    add_operator("cluster", Operator::Role::kCluster);
    add_operator("operator a", Operator::Role::kOurs);
    add_operator("operator b", Operator::Role::kOurs);
  } else {
    add_operator("operator", Operator::Role::kEverything);
  }
  const int nodes = rng_.below(3) == 0 ? 2 : 1;
  for (int i = 0; i < nodes; ++i) {
    machines_.push_back(std::make_unique<Machine>("edge" + std::to_string(i), i + 1, origin_, mutations_, network_, scheduler_,
                                                  cluster_.product_rng()));
    if (rng_.below(4) > 0) machines_.back()->start_agent();  // the others come when all is healed, or before
  }
  const int models = rng_.below(3) == 0 ? 2 : 1;
  for (int i = 0; i < models; ++i) {
    wishes_.push_back({.name = i == 0 ? "digits" : "faces", .port = 8080 + i});
    if (rng_.below(4) == 0) origin_.broken.insert("http://archives/" + wishes_.back().name + "-5");
  }
  // PCT (Burckhardt et al., ASPLOS 2010): with priorities and d changes of them a bug of depth d is found with a known probability;
  // a random walk finds what needs many small changes. Half of the schedules each.
  if (rng_.below(2) == 0) scheduler_.set_policy(Scheduler::Policy::kPriority, 300, static_cast<int>(rng_.below(5)));
}

void Schedule::fail(std::string why) {
  if (!failure_) failure_ = std::move(why);
}

bool Schedule::go_on(SteadyTime limit) {
  if (scheduler_.step()) {
    if (auto wrong = checker_.after_step()) fail(std::move(*wrong));
    // Priorities are unfair, and virtual time stands still while somebody has work: two who answer each other at once (a pod made
    // again as fast as the collector takes it) would keep the news from a third for ever, which no real clock allows.
    if (scheduler_.steps() == kStepsFair) scheduler_.set_policy(Scheduler::Policy::kWalk, 1, 0);
    if (scheduler_.steps() >= kStepsFair) cluster_.clock().move_to(cluster_.clock().now() + milliseconds(1));
    if (scheduler_.steps() >= kStepsMax) fail("no end of work after " + std::to_string(kStepsMax) + " steps");
    for (const auto& one : operators_) {
      if (!one->must_end()) continue;
      scheduler_.note("operator ends, it leads no more", one->name());
      one->stop();
      one->start();
    }
    return true;
  }
  auto next = scheduler_.next();
  if (server_back_ && (!next || *server_back_ < *next)) next = server_back_;
  if (!next || *next > limit) {
    cluster_.clock().move_to(limit);
    return false;
  }
  cluster_.clock().move_to(*next);
  if (server_back_ && *server_back_ <= cluster_.clock().now()) {
    server_back_.reset();
    scheduler_.note("the API server is back");
    cluster_.restart_server(network_);
  }
  return true;
}

void Schedule::misbehave() {
  if (chance(hazards_.operator_restart)) {
    Operator& one = *operators_[rng_.below(operators_.size())];
    scheduler_.note("operator restarts", one.name());
    one.stop();
    one.start();
  }
  Machine& machine = any_machine();
  if (!machine.agent_running()) {
    if (chance(20)) {
      scheduler_.note("agent starts", machine.name());
      machine.start_agent();
    }
  } else if (chance(hazards_.agent_restart)) {
    scheduler_.note("agent dies", machine.name());
    machine.stop_agent();
    if (rng_.below(2) == 0) machine.start_agent();
  } else if (chance(hazards_.reboot)) {
    scheduler_.note("node reboots", machine.name());
    machine.stop_agent();
    machine.lose_containers();
    if (rng_.below(2) == 0) machine.start_agent();
  }
  if (chance(machine.link_up() ? hazards_.link : 30)) {
    scheduler_.note(machine.link_up() ? "link goes down" : "link comes up", machine.name());
    machine.set_link(!machine.link_up());
  }
  if (chance(hazards_.crash)) machine.crash_container(rng_.next());
  if (!server_back_ && chance(hazards_.server_restart)) {
    scheduler_.note("the API server dies");
    network_.serve(nullptr);
    server_back_ = cluster_.clock().now() + milliseconds(rng_.below(5000));
  }
  if (chance(hazards_.compaction)) {
    scheduler_.note("history is compacted");
    const store::Revision now = cluster_.store().revision();
    CHECK(cluster_.store().compact(now - static_cast<store::Revision>(rng_.below(3))).ok() || now < 3);
  }
  if (chance(hazards_.jump)) {
    const SteadyTime to = cluster_.clock().now() + milliseconds(rng_.below(30'000));
    scheduler_.note("time jumps");
    cluster_.clock().move_to(to);
  }
  if (chance(hazards_.objects_deleted) && !server_back_) {
    if (rng_.below(2) == 0) {
      scheduler_.note("user deletes EdgeNode", machine.name());
      cluster_.call("DELETE", "/apis/edgeai.io/v1alpha1/edgenodes/" + machine.name());
    } else {
      scheduler_.note("user deletes Node", machine.name());
      checker_.node_was_deleted(machine.name());
      cluster_.call("DELETE", "/api/v1/nodes/" + machine.name());
    }
  }
}

void Schedule::user_on_model(Wish& wish) {
  const std::string target = kModels + "/" + wish.name;
  const auto learn = [&wish](const Cluster::Reply& reply) {
    CHECK(reply.status == 200 || reply.status == 201);
    wish.exists = true;
    wish.spec = reply.body.at("spec");
    wish.uid = reply.body.at("metadata/uid").as_string();
  };
  const auto node = [this] { return rng_.below(12) == 0 ? std::string("nowhere") : any_machine().name(); };
  if (!wish.exists) {
    Json spec =
        Json::object({{"modelName", wish.name},
                      {"deployToLayer", "edge"},
                      {"frameworkType", "onnx"},
                      {"nodeName", node()},
                      {"servingPort", wish.port},
                      {"manifest", Json::array({version(wish.name, "3"), version(wish.name, "4"), version(wish.name, "5")})},
                      {"targetVersion", std::to_string(3 + rng_.below(3))}});
    const Json object = Json::object({{"apiVersion", "ai.kubeedge.io/v1alpha1"},
                                      {"kind", "InferenceModel"},
                                      {"metadata", Json::object({{"name", wish.name}, {"namespace", "default"}})},
                                      {"spec", std::move(spec)}});
    scheduler_.note("user creates", wish.name);
    learn(cluster_.call("POST", kModels, object));
    return;
  }
  const auto patch = [&](Json spec) {
    scheduler_.note("user patches", wish.name + " " + codec::write_json(spec));
    // What controllers see of it must be what the user was told: the wish is known before the next step.
    learn(cluster_.call("PATCH", target, Json::object({{"spec", std::move(spec)}}), "application/merge-patch+json"));
  };
  switch (rng_.below(8)) {
    case 0:
    case 1:
    case 2:
      patch(Json::object({{"targetVersion", std::to_string(3 + rng_.below(3))}}));
      break;
    case 3:
      patch(Json::object({{"nodeName", node()}}));
      break;
    case 4:
      patch(Json::object({{"replicas", static_cast<std::int64_t>(rng_.below(2))}}));
      break;
    case 5:
    case 6:
      scheduler_.note("user deletes", wish.name);
      CHECK(cluster_.call("DELETE", target).status == 200);
      wish.exists = false;
      break;
    default:
      scheduler_.note("user deletes the pod of", wish.name);
      cluster_.call("DELETE", "/api/v1/namespaces/default/pods/" + wish.name);
  }
}

void Schedule::user_on_deployment() {
  if (!deployment_) {
    deployment_ = static_cast<int>(1 + rng_.below(2));
    const Json labels = Json::object({{"app", "web"}});
    const Json container = Json::object({{"name", "web"}, {"image", "web"}});
    const Json object = Json::object(
        {{"apiVersion", "apps/v1"},
         {"kind", "Deployment"},
         {"metadata", Json::object({{"name", "web"}, {"namespace", "default"}})},
         {"spec",
          Json::object({{"replicas", *deployment_},
                        {"selector", Json::object({{"matchLabels", labels}})},
                        {"template", Json::object({{"metadata", Json::object({{"labels", labels}})},
                                                   {"spec", Json::object({{"containers", Json::array({container})}})}})}})}});
    scheduler_.note("user creates a Deployment");
    CHECK(cluster_.call("POST", kDeployments, object).status == 201);
    return;
  }
  deployment_ = static_cast<int>(rng_.below(4));
  scheduler_.note("user scales the Deployment");
  CHECK(cluster_
            .call("PATCH", kDeployments + "/web", Json::object({{"spec", Json::object({{"replicas", *deployment_}})}}),
                  "application/merge-patch+json")
            .status == 200);
}

void Schedule::user() {
  if (server_back_) return;
  if (with_deployment_ && rng_.below(3) == 0) return user_on_deployment();
  user_on_model(wishes_[rng_.below(wishes_.size())]);
  // Each answer is compared with the events up to it, before the user asks for the next thing.
  if (auto wrong = checker_.after_step()) fail(std::move(*wrong));
}

void Schedule::explore() {
  network_.set_rates(hazards_.network);
  const std::uint64_t most = 100 + rng_.below(300);
  user();
  while (scheduler_.steps() < most && !failure_) {
    if (chance(hazards_.user)) user();
    misbehave();
    (void)go_on(cluster_.clock().now() + minutes(1));
  }
}

void Schedule::heal() {
  scheduler_.note("all is well from here on");
  network_.set_rates({});
  origin_.failures = 0;
  scheduler_.set_policy(Scheduler::Policy::kWalk, 1, 0);
  while (server_back_ && !failure_) (void)go_on(cluster_.clock().now() + seconds(10));
  for (const auto& machine : machines_) {
    machine->set_link(true);
    if (!machine->agent_running()) machine->start_agent();
  }
}

void Schedule::settle() {
  const SteadyTime limit = cluster_.clock().now() + kHealing;
  std::optional<std::string> wrong = "nothing was looked at yet";
  SteadyTime look = cluster_.clock().now() + kQuiet;
  while (!failure_ && cluster_.clock().now() < limit) {
    if (!go_on(std::min(look, limit)) && cluster_.clock().now() >= look) {
      const bool quiet = cluster_.clock().now() - checker_.last_write() >= kQuiet;
      look = quiet ? cluster_.clock().now() + kQuiet : checker_.last_write() + kQuiet;
      if (!quiet) continue;
      wrong = checker_.at_rest();
      if (!wrong) return;
    }
  }
  if (!failure_) fail("did not converge within " + std::to_string(kHealing.count()) + " min: " + *wrong);
}

void Schedule::rest() {
  const std::uint64_t before = checker_.writes();
  const SteadyTime until = cluster_.clock().now() + (rng_.below(16) == 0 ? Duration(minutes(6)) : Duration(seconds(20)));
  scheduler_.note("rest");
  while (!failure_ && go_on(until)) {
  }
  if (failure_) return;
  if (checker_.writes() != before) return fail(std::to_string(checker_.writes() - before) + " writes at rest");
  if (auto wrong = checker_.at_rest()) fail("does not stay: " + *wrong);
}

Outcome Schedule::run() {
  explore();
  if (!failure_) heal();
  if (!failure_) settle();
  if (!failure_) rest();
  Outcome out;
  out.failure = failure_;
  out.steps = scheduler_.steps();
  out.requests = network_.requests();
  out.fingerprint = scheduler_.fingerprint();
  out.trace.assign(scheduler_.trace().begin(), scheduler_.trace().end());
  return out;
}

}  // namespace varda::sim
