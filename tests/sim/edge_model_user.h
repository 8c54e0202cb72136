// EdgeModelUser: an InferenceModel of the edge layer.
#pragma once

#include "requests.h"
#include "user.h"

namespace varda::sim {

class EdgeModelUser final : public User {
 public:
  EdgeModelUser(World& world, std::string name, int port)
      : world_(world),
        port_(port),
        model_(world, "ai.kubeedge.io/v1alpha1", "inferencemodels", "InferenceModel",
               std::move(name)) {}

  void act() override;
  std::optional<std::string> settled() override;
  void add_work(const Machine& machine, WorkKeys& keys) const override;

 private:
  std::string node() const { return model_.spec()["nodeName"].as_string(); }
  std::string target() const { return model_.spec()["targetVersion"].as_string(); }
  bool wants_pod() const { return model_.spec()["replicas"].as_integer(1) > 0; }
  std::string draw_node();

  World& world_;
  const int port_;
  Object model_;
};

}  // namespace varda::sim
