// Trouble: faults around a schedule. The seed draws their kinds, rates and times.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "world.h"

namespace varda::sim {

enum class Hazard : std::size_t {
  kOperatorRestart,
  kAgentDies,
  kReboot,
  kLink,
  kCrash,
  kServerDies,
  kCompaction,
  kJump,
  kEdgeNodeDeleted,
  kNodeDeleted,
};
inline constexpr std::size_t kHazards = 10;

class Trouble {
 public:
  explicit Trouble(World& world) : world_(world) {}

  /// Swarm testing (Groce et al., ISSTA 2012): a schedule with every kind of fault at once hides
  /// bugs that need only one of them. Each schedule therefore draws its kinds, including those of
  /// the network and of archives.
  void draw_network();
  /// Injects each of the drawn kinds at a random rate, during the whole schedule.
  void draw_rates();
  /// Injects at most three faults, each at a random step below `steps`.
  void draw_moments(std::uint64_t steps);

  /// Injects the faults that are due before this step.
  void before_step(std::uint64_t step);

 private:
  void happen(Hazard hazard);
  void come_back();

  World& world_;
  std::array<std::uint32_t, kHazards> rates_{};  // of a thousand steps
  std::vector<std::pair<std::uint64_t, Hazard>> moments_;
};

}  // namespace varda::sim
