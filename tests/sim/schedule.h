// Schedules. A full one leads from an empty cluster to a settled one. A short one starts in a
// settled world, adds a few changes and faults, and settles again. Many short ones share one world;
// each starts where the previous one ended. The seed decides objects, faults and the order of
// steps.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trouble.h"
#include "users.h"
#include "world.h"

namespace varda::sim {

struct Outcome {
  std::optional<std::string> failure;
  std::uint64_t steps = 0;
  std::uint64_t requests = 0;
  std::uint64_t fingerprint = 0;   // of all notes and their times
  std::uint64_t order = 0;         // the same until the world settled, without times
  std::vector<std::string> trace;  // if requested
};

Outcome run_full(Cluster& cluster, std::uint64_t seed, const Mutations& mutations = {},
                 Trace trace = Trace::kNone);

class Batch {
 public:
  /// Number of schedules that share one world. Constant, because a schedule is named by its world
  /// and its index.
  static constexpr std::uint64_t kSchedules = 50;

  Batch(Cluster& cluster, std::uint64_t seed, const Mutations& mutations = {},
        Trace trace = Trace::kNone);

  /// Lets the world settle for the first time. Call it once, before next().
  Outcome begin();
  /// Runs the next short schedule. Not after a failure.
  Outcome next();

 private:
  const std::uint64_t seed_;
  World world_;
  Users users_;
  std::uint64_t index_ = 0;
};

}  // namespace varda::sim
