// DeploymentUser: a Deployment, unrelated to models.
#pragma once

#include "requests.h"
#include "user.h"

namespace varda::sim {

class DeploymentUser final : public User {
 public:
  explicit DeploymentUser(World& world)
      : world_(world), deployment_(world, "apps/v1", "deployments", "Deployment", "web") {}

  void act() override;
  std::optional<std::string> settled() override;

 private:
  World& world_;
  Object deployment_;
};

}  // namespace varda::sim
