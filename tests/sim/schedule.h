// Schedules. A full one goes from an empty cluster to rest. A short one begins in a world that is at rest: a few users and a little
// trouble, and to rest again; many of them share one world, each begins as the one before it ended. What exists, who misbehaves,
// who goes first: all of it comes from the seed.
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
  std::uint64_t fingerprint = 0;   // of everything that happened, and when
  std::uint64_t order = 0;         // of what happened until all was well, without times: two with the same are the same schedule
  std::vector<std::string> trace;  // if it was asked for
};

Outcome run_full(Cluster& cluster, std::uint64_t seed, const Mutations& mutations = {}, Trace trace = Trace::kNone);

class Batch {
 public:
  /// As many as share one world. Fixed: a schedule is named by its world and its place in it.
  static constexpr std::uint64_t kSchedules = 50;

  Batch(Cluster& cluster, std::uint64_t seed, const Mutations& mutations = {}, Trace trace = Trace::kNone);

  /// The world comes to rest for the first time. Once, and before next().
  Outcome begin();
  /// The next short schedule. Not after a failure.
  Outcome next();

 private:
  const std::uint64_t seed_;
  World world_;
  Users users_;
  std::uint64_t index_ = 0;
};

}  // namespace varda::sim
