// CloudModelUser: an InferenceModel of the cloud layer, which becomes a Deployment and a Service.
#pragma once

#include "requests.h"
#include "user.h"

namespace varda::sim {

class CloudModelUser final : public User {
 public:
  CloudModelUser(World& world, std::string name)
      : world_(world),
        model_(world, "ai.kubeedge.io/v1alpha1", "inferencemodels", "InferenceModel",
               std::move(name)) {}

  void act() override;
  std::optional<std::string> settled() override;

 private:
  World& world_;
  Object model_;
};

}  // namespace varda::sim
