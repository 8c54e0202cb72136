#include "cluster/controllers.h"

#include <optional>

#include "cluster/internal/daemon_set.h"
#include "cluster/internal/deployment.h"
#include "cluster/internal/job.h"
#include "cluster/internal/nodes.h"
#include "cluster/internal/replica_set.h"
#include "cluster/internal/scheduler.h"
#include "cluster/service.h"

namespace varda::cluster {

namespace {

struct ControllersImpl final : Controllers {
  ControllersImpl(const runtime::Caches& caches, const kube::Client& client, NodeSessions& s,
                  const Options& options)
      : sessions(s),
        scheduler(caches, client, options),
        replica_sets(caches, options),
        deployments(caches, options),
        daemon_sets(caches, options),
        jobs(caches, options),
        nodes(sessions, client, options),
        edge_nodes(sessions, options) {
    if (options.services) services.emplace(caches, options);
  }
  ~ControllersImpl() override { sessions.on_change(nullptr); }

  NodeSessions& sessions;
  SchedulerReconciler scheduler;
  ReplicaSetReconciler replica_sets;
  DeploymentReconciler deployments;
  DaemonSetReconciler daemon_sets;
  JobReconciler jobs;
  JobOrphanReconciler job_orphans;
  std::optional<ServiceReconciler> services;
  NodeReconciler nodes;
  EdgeNodeLivenessReconciler edge_nodes;
};

}  // namespace

std::unique_ptr<Controllers> add_all(runtime::Manager& manager, const kube::Client& client,
                                     NodeSessions& sessions, Options options) {
  auto all = std::make_unique<ControllersImpl>(manager.caches(), client, sessions, options);
  manager.add<api::Pod>(all->scheduler);
  manager.add<api::ReplicaSet>(all->replica_sets);
  manager.add<api::Deployment>(all->deployments);
  manager.add<api::DaemonSet>(all->daemon_sets);
  manager.add<api::Job>(all->jobs);
  manager.add<api::Pod>(all->job_orphans);
  if (all->services) manager.add<api::Service>(*all->services);
  const auto node = manager.add<api::Node>(all->nodes);
  const auto edge_node = manager.add<api::EdgeNode>(all->edge_nodes);
  sessions.on_change([node, edge_node](const std::string& name) {
    node({"", name});
    edge_node({"", name});
  });
  return all;
}

}  // namespace varda::cluster
