// Users: the kinds in a world, and the order of their turns.
#pragma once

#include <memory>
#include <vector>

#include "cast.h"
#include "user.h"
#include "world.h"

namespace varda::sim {

Cast draw_cast(SeededRng& rng);
std::vector<std::unique_ptr<User>> make_users(World& world, const Cast& cast);

class Users {
 public:
  explicit Users(World& world) : world_(world) {}

  /// One change by one user, and checks of the objects that the user read.
  void act();
  /// Most users make a first change.
  void begin();

 private:
  World& world_;
};

}  // namespace varda::sim
