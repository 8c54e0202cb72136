// Requests: what all users share when they talk to the API server.
#pragma once

#include <optional>
#include <string>

#include "codec/json.h"
#include "world.h"

namespace varda::sim {

/// One object of a user, as the API server last answered for it.
class Object {
 public:
  /// `group_version` is "apps/v1"; everything lives in the namespace default.
  Object(World& world, std::string group_version, std::string plural, std::string kind, std::string name);

  const std::string& name() const { return name_; }
  bool exists() const { return exists_; }
  const std::string& uid() const { return uid_; }
  const codec::Json& spec() const { return spec_; }

  void create(codec::Json spec);
  void patch(codec::Json spec);
  void remove();
  Cluster::Reply get() const { return world_.cluster().call("GET", path()); }
  /// Names the fault of an object that must exist and be observed, or must be gone.
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
/// An archive that a machine can have, and its digest.
std::string archive_of(const std::string& model, const std::string& version);
/// An item of a manifest.
codec::Json manifest_item(const std::string& model, const std::string& version);

/// The number of objects in a list; `path` may have a selector.
std::size_t count(World& world, const std::string& path);
std::string pods_path(const std::string& selector);

/// Names the remains of a model in the cloud layer that must be gone: Deployment, Service, Endpoints, ReplicaSets, pods,
/// containers.
std::optional<std::string> left_of_cloud_model(World& world, const std::string& name);
/// Names the fault of the objects and containers of a model in the cloud layer that serves `version`.
std::optional<std::string> cloud_model_serves(World& world, const std::string& name, const std::string& version,
                                              std::int64_t replicas);

}  // namespace varda::sim
