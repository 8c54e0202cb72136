#include "operator.h"

#include "cluster/indexes.h"
#include "cluster/service.h"

namespace varda::sim {

/// Services without ports: Endpoints are written as the product plans them, without any connection.
class EndpointsReconciler {
 public:
  explicit EndpointsReconciler(const runtime::Caches& caches) : caches_(caches) {}

  void watches(runtime::Watches<api::Service>& w) const {
    w.owns<api::Endpoints>().owns<api::EndpointSlice>().maps<api::Pod>(
        [](const api::Pod& pod, const runtime::Caches& caches) {
          std::vector<meta::ObjectKey> keys;
          for (const auto& service :
               cluster::services_selecting(caches, pod.metadata.ns, pod.metadata.labels))
            keys.push_back(service->metadata.key());
          return keys;
        });
    w.indexes<api::Pod>(cluster::kPodsByLabel, cluster::pods_by_label);
    w.indexes<api::Service>(cluster::kServicesByLabel, cluster::services_by_label);
  }
  Result<runtime::Action> reconcile(const Context& ctx, const api::Service& service,
                                    runtime::Writer& writer) {
    if (service.metadata.deleting()) return runtime::Action::await_change();
    const auto pods = cluster::pods_labelled(caches_, service.metadata.ns, service.spec.selector);
    const cluster::ServicePlan plan = cluster::plan_service(service, pods);
    if (plan.managed)
      TRY_VOID(writer.converge(ctx, service, plan.objects(cluster::ServicePlan::Ports::kOpen)));
    return runtime::Action::await_change();
  }

 private:
  const runtime::Caches& caches_;
};

namespace {

runtime::Manager::Options manager_options(Cluster& cluster, const std::string& name, bool elected) {
  runtime::Manager::Options out;
  out.component = "varda";
  out.clock = &cluster.clock();
  out.rng = &cluster.product_rng();
  if (elected) {
    out.election.emplace();
    out.election->lease.identity = name;
  }
  return out;
}

}  // namespace

Operator::Life::~Life() = default;

Operator::Operator(std::string name, Role role, Cluster& cluster, Network& network,
                   Scheduler& scheduler)
    : name_(std::move(name)),
      role_(role),
      cluster_(cluster),
      network_(network),
      scheduler_(scheduler) {}

Operator::Life::Life(const Operator& self)
    : process(self.name_),
      link(self.network_, process, {"system:varda:operator", {"system:masters"}}),
      client(link, {.field_manager = "varda"}),
      manager(client, manager_options(self.cluster_, self.identity(), self.role_ == Role::kVarda)) {
  if (self.role_ != Role::kCluster) {
    hosting::Options options;
    options.node_port_host = "127.0.0.1";
    options.clock = &self.cluster_.clock();
    varda_controllers = controllers::add_all(manager, options);
  }
  if (self.role_ != Role::kVarda) {
    cluster_controllers = cluster::add_all(manager, client, self.cluster_.sessions(),
                                           {.services = false, .clock = &self.cluster_.clock()});
    endpoints = std::make_unique<EndpointsReconciler>(manager.caches());
    manager.add<api::Service>(*endpoints);
  }
}

void Operator::start() {
  ++lives_;
  life_ = std::make_unique<Life>(*this);
  for (runtime::Task& task : life_->manager.tasks())
    scheduler_.add(life_->process, std::move(task));
}

void Operator::stop() {
  if (!life_) return;
  scheduler_.kill(life_->process);
  life_->cluster_controllers.reset();
  life_.reset();
}

}  // namespace varda::sim
