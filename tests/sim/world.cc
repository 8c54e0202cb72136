#include "world.h"

#include <algorithm>

#include "base/check.h"
#include "users.h"

namespace varda::sim {

using std::chrono::milliseconds, std::chrono::seconds, std::chrono::minutes;

namespace {

// Everything heals within this time: downloads and queues retry after minutes at most.
constexpr minutes kHealing{30};
// Far more than any schedule needs. Beyond it, work never ends: a task is always due, and time
// stands still.
constexpr std::uint64_t kStepsMax = 50'000;
constexpr seconds kCounts{15};
constexpr std::uint64_t kStepsFair = 5'000;  // most schedules end before 1,000

}  // namespace

World::World(Cluster& cluster, std::uint64_t seed, const Mutations& mutations, Trace trace)
    : cluster_((cluster.begin(seed), cluster)),
      mutations_(mutations),
      scheduler_(cluster.clock(), rng_),
      network_(scheduler_, cluster.store(), mutations_),
      checker_(cluster, machines_, users_) {
  rng_.seed(seed * 0x9e3779b97f4a7c15ULL + 1);
  scheduler_.keep_trace(trace == Trace::kKeep);
  network_.serve(cluster.server());
  const auto due =
      std::make_shared<std::pair<store::Revision, std::optional<SteadyTime>>>(-1, std::nullopt);
  scheduler_.add(server_, {"controllers",
                           [this, due]() -> std::optional<SteadyTime> {
                             if (server_back_) return std::nullopt;
                             return cluster_.store().revision() != due->first ? SteadyTime::min()
                                                                              : due->second;
                           },
                           [this, due](const Context&) {
                             due->first = cluster_.store().revision();
                             due->second = cluster_.server()->step_controllers();
                             if (!due->second) due->second = SteadyTime::min();
                           }});
  draw();
  scheduler_.begin();
}

World::~World() {
  for (const auto& one : operators_) one->stop();
  machines_.clear();
  scheduler_.kill(server_);
}

void World::draw() {
  const Cast drawn = draw_cast(rng_), cast = mutations_.cast.value_or(drawn);
  const bool elected = rng_.below(8) == 0;
  const auto add_operator = [this](const char* name, Operator::Role role) {
    operators_.push_back(std::make_unique<Operator>(name, role, cluster_, network_, scheduler_));
    operators_.back()->start();
  };
  if (elected) {
    add_operator("cluster", Operator::Role::kCluster);
    add_operator("operator a", Operator::Role::kVarda);
    add_operator("operator b", Operator::Role::kVarda);
  } else {
    add_operator("operator", Operator::Role::kEverything);
  }
  edge_machines_ = rng_.below(3) == 0 ? 2 : 1;
  const std::size_t machines = edge_machines_ + (cast.needs_cloud() ? 1 : 0);
  for (std::size_t i = 0; i < machines; ++i) {
    const bool edge = i < edge_machines_;
    machines_.push_back(std::make_unique<Machine>(edge ? "edge" + std::to_string(i) : "cloud",
                                                  edge ? "edge" : "cloud", static_cast<int>(i) + 1,
                                                  origin_, mutations_, network_, scheduler_,
                                                  cluster_.product_rng()));
    if (rng_.below(4) > 0) machines_.back()->start_agent();  // the others start later
  }
  users_ = make_users(*this, cast);
  for (const char* model : {"digits", "faces", "speech"})
    if (rng_.below(4) == 0) origin_.broken.insert(std::string("http://archives/") + model + "-5");
}

void World::begin(std::uint64_t seed) {
  rng_.seed(seed);
  cluster_.product_rng().seed(rng_.next());
  steps_before_ = scheduler_.steps();
  requests_before_ = network_.requests();
  scheduler_.begin();
  checker_.begin();
  for (const auto& machine : machines_) machine->forget_old_answers();
}

void World::fail(std::string why) {
  if (!failure_) failure_ = std::move(why);
}

void World::server_dies(SteadyTime back) {
  CHECK(!server_back_);
  scheduler_.note("the API server dies");
  network_.serve(nullptr);
  server_back_ = back;
}

bool World::run_next(SteadyTime limit) {
  if (scheduler_.step()) {
    if (auto wrong = checker_.after_step()) fail(std::move(*wrong));
    // Priorities are unfair, and virtual time stands still while a task is due. Two tasks that
    // keep each other busy would starve a third forever, which no real clock allows.
    if (steps() == kStepsFair) scheduler_.set_policy(Scheduler::Policy::kWalk, 1, 0);
    if (steps() >= kStepsFair) cluster_.clock().move_to(cluster_.clock().now() + milliseconds(1));
    if (steps() >= kStepsMax) fail("no end of work after " + std::to_string(kStepsMax) + " steps");
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

void World::heal() {
  scheduler_.note("all is well from here on");
  network_.set_rates({});
  origin_.failures = 0;
  scheduler_.set_policy(Scheduler::Policy::kWalk, 1, 0);
  while (server_back_ && !failure_) (void)run_next(cluster_.clock().now() + seconds(10));
  for (const auto& machine : machines_) {
    machine->set_link(true);
    if (!machine->agent_running()) machine->start_agent();
  }
}

bool World::led() const {
  return std::any_of(operators_.begin(), operators_.end(), [this](const auto& one) {
    return one->role() == Operator::Role::kEverything ||
           (one->role() == Operator::Role::kVarda && checker_.leader() == one->identity());
  });
}

void World::settle(Duration idle) {
  // Agents report counts 10 s after their last report, and operators 10 s after their last write.
  if (std::any_of(users_.begin(), users_.end(),
                  [](const auto& user) { return user->reports_counts(); }))
    idle += kCounts;
  const SteadyTime limit = cluster_.clock().now() + kHealing;
  std::optional<std::string> wrong = "nothing was looked at yet";
  SteadyTime look = cluster_.clock().now() + idle;
  while (!failure_ && cluster_.clock().now() < limit) {
    if (!run_next(std::min(look, limit)) && cluster_.clock().now() >= look) {
      const bool is_idle = cluster_.clock().now() - checker_.last_write() >= idle;
      look = is_idle ? cluster_.clock().now() + idle : checker_.last_write() + idle;
      wrong = led() ? checker_.check_settled() : "no operator leads";
      if (is_idle && !wrong) return;
      if (!is_idle)
        wrong =
            "writes do not end, the last to " + checker_.last_written() + "; " + wrong.value_or("");
    }
  }
  fail("did not converge within " + std::to_string(kHealing.count()) + " min: " + *wrong);
}

void World::stay_settled(Duration how_long) {
  // An operator writes an event about a problem once it has lasted 20 s.
  const SteadyTime reported = cluster_.clock().now() + std::chrono::seconds(25);
  while (!failure_ && run_next(reported)) {
  }
  if (failure_) return;
  const std::uint64_t before = checker_.writes();
  const SteadyTime until = cluster_.clock().now() + how_long;
  scheduler_.note("rest");
  while (!failure_ && run_next(until)) {
  }
  if (failure_) return;
  if (checker_.writes() != before)
    return fail(std::to_string(checker_.writes() - before) + " writes at rest, the last to " +
                checker_.last_written());
  if (auto wrong = checker_.check_settled()) fail("does not stay: " + *wrong);
}

}  // namespace varda::sim
