// JointUser: a JointInferenceService with an edge tier and a cloud tier, the Models of both tiers,
// and clients.
#pragma once

#include "requests.h"
#include "user.h"

namespace varda::sim {

class JointUser : public User {
 public:
  JointUser(World& world, const std::string& name)
      : world_(world),
        service_(world, "sedna.io/v1alpha1", "jointinferenceservices", "JointInferenceService",
                 name),
        small_(world, "sedna.io/v1alpha1", "models", "Model", name + "-small"),
        big_(world, "sedna.io/v1alpha1", "models", "Model", name + "-big") {}

  void act() override;
  std::optional<std::string> settled() override;
  void add_work(const Machine& machine, WorkKeys& keys) const override;
  bool reports_counts() const override { return true; }

 protected:
  /// The worker of the created first tier.
  virtual codec::Json edge_worker();
  /// Names the problem of the first tier's only container, which runs on the right node.
  virtual std::optional<std::string> first_tier_works(Machine& home, const Container& server,
                                                      const codec::Json& status);
  /// The tiers that the first tier's node announces to it.
  struct TiersReported {
    std::string cloud_url, threshold;
  };
  virtual TiersReported tiers_reported(Machine& home);
  World& world() const { return world_; }
  const Object& service() const { return service_; }
  const Object& small() const { return small_; }
  /// The directory of the first tier's model on its node.
  std::string key() const { return "default/" + service_.name() + ".edge"; }
  std::string node() const { return service_.spec().at("edgeWorker/nodeName").as_string(); }
  /// A Model without a version is named by its digest.
  static std::string version_of(const Object& model) {
    return model.spec()["sha256"].as_string().substr(0, 12);
  }

 private:
  std::string child() const { return service_.name() + "-cloud"; }
  void release(Object& model);
  void send_requests();
  void delete_pod();
  std::optional<std::string> models_settled();
  std::optional<std::string> check_deleted();
  std::optional<std::string> edge_settled(const codec::Json& status);
  std::optional<std::string> cloud_settled(const codec::Json& status,
                                           const TiersReported& reported);

  World& world_;
  Object service_, small_, big_;
  std::int64_t answered_ = 0;  // client requests that may count for the current service
};

}  // namespace varda::sim
