// Users: the kinds that a world plays, and the order of their turns.
#pragma once

#include <memory>
#include <vector>

#include "user.h"
#include "world.h"

namespace varda::sim {

/// Every kind has its own user. A world plays few kinds, so that a schedule stays short and its kinds meet each other.
struct Cast {
  int edge_models = 0;
  bool deployment = false, cloud_model = false, joint = false, dataset = false;
  /// Whether there must be a node of the cloud layer.
  bool needs_cloud() const { return cloud_model || joint; }
};
Cast draw_cast(SeededRng& rng);
std::vector<std::unique_ptr<User>> make_users(World& world, const Cast& cast);

class Users {
 public:
  explicit Users(World& world) : world_(world) {}

  /// One change of one user, and the checks of what the user read.
  void act();
  /// Most users begin.
  void begin();

 private:
  World& world_;
};

}  // namespace varda::sim
