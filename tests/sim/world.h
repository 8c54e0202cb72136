// World: everything of one simulated cluster that lives while a schedule goes on, and how it comes to rest. Who does what in it
// comes from outside: users.h, trouble.h.
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
  /// Empties the cluster and draws who is there: operators, nodes, users. Operators run; of the agents some do.
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
  /// The nodes of the edge layer come first.
  Machine& edge_machine() { return *machines_[rng_.below(edge_machines_)]; }

  /// A new schedule in the world as it is: randomness from `seed`, counted and told from here on.
  void begin(std::uint64_t seed);
  /// Steps of this schedule.
  std::uint64_t steps() const { return scheduler_.steps() - steps_before_; }
  std::uint64_t requests() const { return network_.requests() - requests_before_; }

  /// A step, or virtual time goes on to the next one; false: until `limit` there is none. Checks what must always hold.
  bool go_on(SteadyTime limit);
  /// The API server dies and is back at that time.
  void server_dies(SteadyTime back);
  bool server_down() const { return server_back_.has_value(); }

  /// No trouble from here on: every link up, everything started, a fair walk.
  void heal();
  /// Goes on until everything is as its users want it and nothing was written for that long.
  void settle(Duration quiet);
  /// Nothing may be written for that long.
  void rest(Duration how_long);

  void fail(std::string why);
  const std::optional<std::string>& failure() const { return failure_; }

 private:
  void draw();
  /// Whether there is an operator that works: the only one, or the one that leads.
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
