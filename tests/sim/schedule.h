// Schedule: one seed from an empty cluster to rest. What exists, who misbehaves, who goes first: all of it comes from the seed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checker.h"
#include "cluster.h"
#include "machine.h"
#include "network.h"
#include "operator.h"
#include "scheduler.h"

namespace varda::sim {

struct Outcome {
  std::optional<std::string> failure;
  std::uint64_t steps = 0;
  std::uint64_t requests = 0;
  std::uint64_t fingerprint = 0;
  std::vector<std::string> trace;  // if it was asked for
};

enum class Trace { kNone, kKeep };

class Schedule {
 public:
  Schedule(Cluster& cluster, std::uint64_t seed, const Mutations& mutations, Trace trace);
  ~Schedule();
  Outcome run();

 private:
  /// What goes wrong in this schedule; each seed has some kinds of it and lacks others.
  struct Hazards {
    FaultRates network;
    std::uint32_t user = 0, operator_restart = 0, agent_restart = 0, reboot = 0, link = 0, crash = 0, server_restart = 0,
                  compaction = 0, jump = 0, objects_deleted = 0;
  };
  void draw();
  bool chance(std::uint32_t per_thousand) { return rng_.chance(per_thousand); }
  /// Steps and virtual time go on once; false: nothing could.
  bool go_on(SteadyTime limit);
  void explore();
  void misbehave();
  void user();
  void user_on_model(Wish& wish);
  void user_on_deployment();
  void heal();
  void settle();
  void rest();
  void fail(std::string why);
  Machine& any_machine() { return *machines_[rng_.below(machines_.size())]; }

  Cluster& cluster_;
  const std::uint64_t seed_;
  SeededRng rng_;
  Scheduler scheduler_;
  Network network_;
  Origin origin_;
  const Mutations mutations_;
  Process server_{"api server"};
  std::vector<std::unique_ptr<Operator>> operators_;
  std::vector<std::unique_ptr<Machine>> machines_;
  std::vector<Wish> wishes_;
  std::optional<int> deployment_;  // replicas
  bool with_deployment_ = false;
  std::optional<SteadyTime> server_back_;
  Hazards hazards_;
  Checker checker_;
  std::optional<std::string> failure_;
};

}  // namespace varda::sim
