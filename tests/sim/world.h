// World: one simulated cluster during a schedule, and the way it settles. Changes and faults come
// from outside: users.h, trouble.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checker.h"
#include "cluster.h"
#include "machine.h"
#include "mutations.h"
#include "network.h"
#include "operator.h"
#include "scheduler.h"
#include "user.h"

namespace varda::sim {

enum class Trace { kNone, kKeep };

class World {
 public:
  /// Empties the cluster and draws operators, nodes and users. Starts all operators and some
  /// agents.
  World(Cluster& cluster, std::uint64_t seed, const Mutations& mutations, Trace trace);
  ~World();

  Cluster& cluster() { return cluster_; }
  SeededRng& rng() { return rng_; }
  Scheduler& scheduler() { return scheduler_; }
  Network& network() { return network_; }
  Origin& origin() { return origin_; }
  Checker& checker() { return checker_; }
  std::vector<std::unique_ptr<Operator>>& operators() { return operators_; }
  std::vector<std::unique_ptr<Machine>>& machines() { return machines_; }
  std::vector<std::unique_ptr<User>>& users() { return users_; }
  Machine& any_machine() { return *machines_[rng_.below(machines_.size())]; }
  /// Nodes of the edge layer come first.
  Machine& edge_machine() { return *machines_[rng_.below(edge_machines_)]; }

  /// Starts a new schedule in the current world: reseeds from `seed` and resets counters and trace.
  void begin(std::uint64_t seed);
  /// Steps of this schedule.
  std::uint64_t steps() const { return scheduler_.steps() - steps_before_; }
  std::uint64_t requests() const { return network_.requests() - requests_before_; }

  /// Runs a step, or advances virtual time to the next one; false: no step until `limit`. Checks
  /// the invariants of every step.
  bool run_next(SteadyTime limit);
  /// The API server dies, and restarts at that time.
  void server_dies(SteadyTime back);
  bool server_down() const { return server_back_.has_value(); }

  /// Ends all faults: every link is up, everything is started, scheduling is fair.
  void heal();
  /// Runs until everything matches the users' requests and nothing was written for `idle`.
  void settle(Duration idle);
  /// Checks that nothing is written for that long.
  void stay_settled(Duration how_long);

  void fail(std::string why);
  const std::optional<std::string>& failure() const { return failure_; }

 private:
  void draw();
  /// Whether an operator works: the only one, or the leader.
  bool led() const;

  Cluster& cluster_;
  const Mutations mutations_;
  SeededRng rng_;
  Scheduler scheduler_;
  Network network_;
  Origin origin_;
  Process server_{"api server"};
  std::vector<std::unique_ptr<Operator>> operators_;
  std::vector<std::unique_ptr<Machine>> machines_;
  std::size_t edge_machines_ = 0;
  std::vector<std::unique_ptr<User>> users_;
  std::optional<SteadyTime> server_back_;
  Checker checker_;
  std::optional<std::string> failure_;
  std::uint64_t steps_before_ = 0, requests_before_ = 0;
};

}  // namespace varda::sim
