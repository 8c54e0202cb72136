// Users: who creates, changes and deletes models and Deployments, by requests of their own. What they were told is their wish.
#pragma once

#include "world.h"

namespace varda::sim {

class Users {
 public:
  enum class Deployments { kNone, kSome };
  Users(World& world, Deployments deployments) : world_(world), with_deployment_(deployments == Deployments::kSome) {}

  /// One request of one user, and the checks of what it answered.
  void act();
  /// Each model and the Deployment, or some of them, for the first time.
  void begin();

 private:
  void on_model(Wish& wish);
  void on_deployment();

  World& world_;
  const bool with_deployment_;
};

}  // namespace varda::sim
