// JointUser: a JointInferenceService with a tier at the edge and one in the cloud, the two Models of these tiers, and clients.
#pragma once

#include "requests.h"
#include "user.h"

namespace varda::sim {

class JointUser final : public User {
 public:
  JointUser(World& world, const std::string& name)
      : world_(world),
        service_(world, "sedna.io/v1alpha1", "jointinferenceservices", "JointInferenceService", name),
        small_(world, "sedna.io/v1alpha1", "models", "Model", name + "-small"),
        big_(world, "sedna.io/v1alpha1", "models", "Model", name + "-big") {}

  void act() override;
  std::optional<std::string> settled() override;
  void add_work(const Machine& machine, WorkKeys& keys) const override;
  bool reports_counts() const override { return true; }

 private:
  std::string child() const { return service_.name() + "-cloud"; }
  /// The directory of the first tier's model on its node.
  std::string key() const { return "default/" + service_.name() + ".edge"; }
  std::string node() const { return service_.spec().at("edgeWorker/nodeName").as_string(); }
  void release(Object& model);
  void send_requests();
  void delete_pod();
  std::optional<std::string> models_settled();
  std::optional<std::string> gone();
  std::optional<std::string> edge_settled(const codec::Json& status);
  std::optional<std::string> cloud_settled(const codec::Json& status, const std::string& told);

  World& world_;
  Object service_, small_, big_;
  std::int64_t answered_ = 0;  // requests that clients sent to services of this name, and that were answered. An agent that
                               // was away while a service was replaced reports the counts of the service before as well.
};

}  // namespace varda::sim
