#include "operator.h"

namespace varda::sim {
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

Operator::Operator(std::string name, Role role, Cluster& cluster, Network& network, Scheduler& scheduler)
    : name_(std::move(name)), role_(role), cluster_(cluster), network_(network), scheduler_(scheduler) {}

Operator::Life::Life(const Operator& self)
    : process(self.name_),
      link(self.network_, process, {"system:varda:operator", {"system:masters"}}),
      client(link, {.field_manager = "varda"}),
      manager(client, manager_options(self.cluster_, self.identity(), self.role_ == Role::kOurs)) {
  if (self.role_ != Role::kCluster) {
    controllers::Options options;
    options.inference_models.node_port_host = "127.0.0.1";
    options.inference_models.clock = &self.cluster_.clock();
    ours = controllers::add_all(manager, std::move(options));
  }
  if (self.role_ != Role::kOurs) {
    builtin =
        controllers::add_builtin(manager, client, self.cluster_.sessions(), {.services = false, .clock = &self.cluster_.clock()});
  }
}

void Operator::start() {
  ++lives_;
  life_ = std::make_unique<Life>(*this);
  for (runtime::Strand& strand : life_->manager.strands()) scheduler_.add(life_->process, std::move(strand));
}

void Operator::stop() {
  if (!life_) return;
  scheduler_.kill(life_->process);
  life_->builtin.reset();
  life_.reset();
}

}  // namespace varda::sim
