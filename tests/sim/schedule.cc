#include "schedule.h"

namespace varda::sim {

using std::chrono::seconds, std::chrono::minutes;

namespace {

// Longer than every periodic task: checks of the Node every 10 s, polls of servers every 2 s.
// Watches are renewed every 10 to 15 s.
constexpr seconds kShortIdle{10}, kShortQuiet{12};

// PCT (Burckhardt et al., ASPLOS 2010): with priorities and d changes of them, a bug of depth d is
// found with a known probability. A random walk finds bugs that need many small changes. Half of
// the schedules use each.
void draw_policy(World& world, std::uint64_t steps) {
  if (world.rng().below(2) == 0)
    world.scheduler().set_policy(Scheduler::Policy::kPriority, steps,
                                 static_cast<int>(world.rng().below(5)));
}

Outcome settle(World& world, Duration idle, Duration quiet) {
  Outcome out;
  out.order = world.scheduler().order();
  if (!world.failure()) world.heal();
  if (!world.failure()) world.settle(idle);
  if (!world.failure()) world.stay_settled(quiet);
  out.failure = world.failure();
  out.steps = world.steps();
  out.requests = world.requests();
  out.fingerprint = world.scheduler().fingerprint();
  out.trace.assign(world.scheduler().trace().begin(), world.scheduler().trace().end());
  return out;
}

}  // namespace

Outcome run_full(Cluster& cluster, std::uint64_t seed, const Mutations& mutations, Trace trace) {
  World world(cluster, seed, mutations, trace);
  SeededRng& rng = world.rng();
  Trouble trouble(world);
  trouble.draw_network();
  trouble.draw_rates();
  const auto user_rate = 10 + static_cast<std::uint32_t>(rng.below(60));
  Users users(world);
  draw_policy(world, 300);
  const std::uint64_t most = 100 + rng.below(300);
  users.act();
  while (world.steps() < most && !world.failure()) {
    if (rng.chance(user_rate)) users.act();
    trouble.before_step(world.steps());
    (void)world.run_next(cluster.clock().now() + minutes(1));
  }
  return settle(world, seconds(15),
                rng.below(16) == 0 ? Duration(minutes(6)) : Duration(seconds(20)));
}

Batch::Batch(Cluster& cluster, std::uint64_t seed, const Mutations& mutations, Trace trace)
    // These worlds differ from those of full schedules with the same seed.
    : seed_(seed * 0xd1342543de82ef95ULL + 7),
      world_(cluster, seed_, mutations, trace),
      users_(world_) {}

Outcome Batch::begin() {
  users_.begin();
  return settle(world_, kShortIdle, kShortQuiet);
}

Outcome Batch::next() {
  world_.begin(seed_ + 0x9e3779b97f4a7c15ULL * ++index_);
  SeededRng& rng = world_.rng();
  const std::uint64_t most = 30 + rng.below(70);
  Trouble trouble(world_);
  trouble.draw_network();
  trouble.draw_moments(most);
  draw_policy(world_, most);
  users_.act();
  const auto user_rate = static_cast<std::uint32_t>(3000 / most);  // one or four more
  while (world_.steps() < most && !world_.failure()) {
    if (rng.chance(user_rate)) users_.act();
    trouble.before_step(world_.steps());
    (void)world_.run_next(world_.cluster().clock().now() + minutes(1));
  }
  return settle(world_, kShortIdle, kShortQuiet);
}

}  // namespace varda::sim
