// Trouble: what goes wrong around a schedule. Which kinds, how often or when is drawn from the seed.
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

  /// Swarm testing (Groce et al., ISSTA 2012): a schedule with every kind of trouble at once hides what needs only one of them, so
  /// each draws which kinds it has, of the network and of archives too.
  void draw_network();
  /// Each of the drawn kinds now and then, for as long as it takes.
  void draw_rates();
  /// At most three, each at a drawn step below `steps`.
  void draw_moments(std::uint64_t steps);

  /// What is to go wrong before this step.
  void before_step(std::uint64_t step);

 private:
  void happen(Hazard hazard);
  void come_back();

  World& world_;
  std::array<std::uint32_t, kHazards> rates_{};  // of a thousand steps
  std::vector<std::pair<std::uint64_t, Hazard>> moments_;
};

}  // namespace varda::sim
