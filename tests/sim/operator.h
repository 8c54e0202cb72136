// Operator: an operator process with its informers, controllers, events and lease, as in `varda
// operator` or `varda up`.
#pragma once

#include <memory>
#include <string>

#include "cluster.h"
#include "cluster/controllers.h"
#include "controllers/controllers.h"
#include "kube/client.h"
#include "network.h"
#include "runtime/manager.h"

namespace varda::sim {

class EndpointsReconciler;

class Operator {
 public:
  enum class Role {
    kEverything,  // `varda up`: varda's and a cluster's controllers
    kVarda,       // `varda operator`: one of several, elected by a lease
    kCluster,     // a cluster's controllers
  };

  Operator(std::string name, Role role, Cluster& cluster, Network& network, Scheduler& scheduler);
  ~Operator() { stop(); }

  bool running() const { return life_ != nullptr; }
  void start();
  /// Dies at once, and loses its memory.
  void stop();
  /// Whether it lost leadership and must exit, as its process would.
  bool must_end() const { return life_ && life_->manager.leadership_lost(); }
  const std::string& name() const { return name_; }
  Role role() const { return role_; }
  /// The identity of this run in elections.
  std::string identity() const { return name_ + "-" + std::to_string(lives_); }

 private:
  struct Life {
    explicit Life(const Operator& self);
    ~Life();
    Process process;
    Network::Link link;
    kube::Client client;
    runtime::Manager manager;
    std::unique_ptr<controllers::Controllers> varda_controllers;
    std::unique_ptr<cluster::Controllers> cluster_controllers;
    std::unique_ptr<EndpointsReconciler> endpoints;
  };

  const std::string name_;
  const Role role_;
  Cluster& cluster_;
  Network& network_;
  Scheduler& scheduler_;
  int lives_ = 0;
  std::unique_ptr<Life> life_;
};

}  // namespace varda::sim
