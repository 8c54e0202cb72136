// Requests: helpers for all users that send requests to the API server.
#pragma once

#include <optional>
#include <string>

#include "codec/json.h"
#include "world.h"

namespace varda::sim {

/// One object of a user, as in the API server's last answer.
class Object {
 public:
  /// `group_version` is "apps/v1"; all objects are in the namespace default.
  Object(World& world, std::string group_version, std::string plural, std::string kind,
         std::string name);

  const std::string& name() const { return name_; }
  bool exists() const { return exists_; }
  const std::string& uid() const { return uid_; }
  const codec::Json& spec() const { return spec_; }

  void create(codec::Json spec);
  void patch(codec::Json spec);
  void remove();
  Cluster::Reply get() const { return world_.cluster().call("GET", path()); }
  /// Names the problem of an object that must exist and be observed, or must be gone.
  std::optional<std::string> presence(const Cluster::Reply& reply) const;
  std::string what() const { return kind_ + " " + name_ + ": "; }

 private:
  std::string path() const;
  void learn(const Cluster::Reply& reply);

  World& world_;
  const std::string group_version_, plural_, kind_, name_;
  bool exists_ = false;
  std::string uid_;
  codec::Json spec_;
};

/// "True Serving"; "" without such a condition.
std::string condition(const codec::Json& object, std::string_view type);
/// "http://ADDRESS:PORT"
std::string url_of(const std::string& address, std::int64_t port);
/// An archive that a machine can download; its digest is Origin::digest().
std::string archive_of(const std::string& model, const std::string& version);
/// An item of a manifest.
codec::Json manifest_item(const std::string& model, const std::string& version);

/// The number of objects in a list; `path` may have a selector.
std::size_t count(World& world, const std::string& path);
std::string pods_path(const std::string& selector);

/// Names the remains of a deleted model in the cloud layer: Deployment, Service, Endpoints,
/// ReplicaSets, pods, containers.
std::optional<std::string> left_of_cloud_model(World& world, const std::string& name);
/// Names the problem of a cloud model's objects and containers when it must serve `version`.
std::optional<std::string> cloud_model_serves(World& world, const std::string& name,
                                              const std::string& version, std::int64_t replicas);

}  // namespace varda::sim
