// Users: the kinds that a world plays, and the order of their turns.
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

  /// One change of one user, and the checks of what the user read.
  void act();
  /// Most users begin.
  void begin();

 private:
  World& world_;
};

}  // namespace varda::sim
