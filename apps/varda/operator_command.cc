// operator: the controllers against any API server.
#include <memory>

#include "admin.h"
#include "command.h"
#include "controllers/controllers.h"
#include "data_directory.h"
#include "kube/config.h"
#include "runtime/manager.h"
#include "servers_flag.h"

namespace varda::app {
namespace {

struct OperatorFlags {
  std::string admin = "127.0.0.1:8085", election_namespace = "kube-system", servers;
  bool elect = true;
};

Status operate(const Context& ctx, const Globals& globals, const OperatorFlags& flags) {
  TRY_VOID(set_up_logs(globals, log::Level::kInfo));
  TRY(const kube::Config config, kube::find_config(globals.kubeconfig, default_data_dir() / "kubeconfig"));
  metrics::Registry registry;
  const std::unique_ptr<kube::Client> client = kube::connect(config, {.field_manager = "varda-operator", .metrics = &registry});
  runtime::Manager::Options options{.component = "varda-operator", .metrics = &registry};
  if (flags.elect) {
    runtime::LeaderElector::Options election;
    election.ns = flags.election_namespace;
    election.metrics = &registry;
    options.election = election;
  }
  runtime::Manager manager(*client, std::move(options));
  controllers::Options ours;
  if (!flags.servers.empty()) {
    TRY(ours.inference_models.servers, read_servers(flags.servers));
  }
  const auto controllers = controllers::add_all(manager, ours);
  TRY(const auto admin, serve_admin(flags.admin, registry, [&manager] { return manager.ready(); }));
  return manager.run(ctx);
}

}  // namespace

void add_operator_command(Program program) {
  Globals& globals = program.globals;
  Run& chosen = program.chosen;

  const auto flags = std::make_shared<OperatorFlags>();
  CLI::App* command = program.daemon("operator", "run Varda's controllers against an API server");
  command->add_option("--kubeconfig", globals.kubeconfig, "the server; default: $KUBECONFIG, then the pod's service account");
  command->add_option("--admin", flags->admin, "address of /healthz, /readyz and /metrics")->default_str("127.0.0.1:8085");
  command->add_option("--servers", flags->servers,
                      "YAML file that says which server runs which frameworkType; default: onnx by varda-serve");
  command->add_flag("--leader-elect,!--no-leader-elect", flags->elect, "of several operators let one work (default)");
  command->add_option("--leader-election-namespace", flags->election_namespace, "of the Lease")->default_str("kube-system");
  command->callback(
      [&chosen, &globals, flags] { chosen = [&globals, flags](const Context& ctx) { return operate(ctx, globals, *flags); }; });
}

}  // namespace varda::app
