// operator: runs the controllers against any API server.
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "admin.h"
#include "base/rng.h"
#include "blob_names.h"
#include "codec/digest.h"
#include "command.h"
#include "controller_flags.h"
#include "controllers/cache_filter.h"
#include "controllers/controllers.h"
#include "datadir/data_directory.h"
#include "download_flags.h"
#include "edge_authority.h"
#include "file_digests.h"
#include "gateway/join_token.h"
#include "hosting/certificate_issuer.h"
#include "kube/config.h"
#include "meta/resources.h"
#include "net/certificates.h"
#include "net/url.h"
#include "os/memory.h"
#include "registry_access.h"
#include "runtime/manager.h"

namespace varda::app {
namespace {

constexpr const char* kElectionGroup = "Leader election";

struct OperatorFlags {
  std::string admin = "127.0.0.1:8085", election_namespace;
  std::vector<std::string> namespaces;
  ControllerFlags controllers;
  std::vector<std::string> allow_sources;
  RegistryAccess registry;
  std::string job_gateway = "https://varda-gateway.varda-system.svc:10443";
  bool elect = true;
  std::int64_t lease_ms = 15'000, renew_ms = 10'000, retry_ms = 2'000;
};

/// The namespace of the operator's own objects; "": unknown.
std::string own_namespace(const OperatorFlags& flags) {
  if (!flags.election_namespace.empty()) return flags.election_namespace;
  const auto pod = kube::in_cluster();
  return pod.ok() ? pod->ns : "";
}

/// Options of the Lease. A leader must stop before another operator may take over, and needs time
/// for several attempts to renew.
Result<runtime::LeaderElector::Options> election_of(const OperatorFlags& flags) {
  using std::chrono::milliseconds;
  if (flags.lease_ms % 1000 != 0 || flags.lease_ms < 1000)
    return Error(Code::kInvalid, "--leader-election-lease-duration: whole seconds, at least one");
  if (flags.renew_ms >= flags.lease_ms)
    return Error(
        Code::kInvalid,
        "--leader-election-renew-deadline must be shorter than --leader-election-lease-duration");
  if (flags.retry_ms <= 0 || flags.retry_ms * 6 / 5 >= flags.renew_ms)
    return Error(Code::kInvalid,
                 "--leader-election-retry-period and a fifth more must be shorter than "
                 "--leader-election-renew-deadline");
  runtime::LeaderElector::Options election;
  if (const std::string own = own_namespace(flags); !own.empty()) election.ns = own;
  election.lease.lease_duration =
      std::chrono::duration_cast<std::chrono::seconds>(milliseconds(flags.lease_ms));
  election.lease.renew_deadline = milliseconds(flags.renew_ms);
  election.lease.retry_period = milliseconds(flags.retry_ms);
  return election;
}

/// Jobs of the cluster, for TrainingModels without a node. `authority` and `client` outlive the
/// result.
hosting::ClusterJobs jobs_of(const std::string& gateway, const std::string& agent_image,
                             const EdgeAuthority& authority, const kube::Client& client) {
  hosting::ClusterJobs out{.gateway_url = gateway, .agent_image = agent_image};
  out.make_token = [&authority]() -> std::optional<hosting::AgentToken> {
    const std::string pem = authority.pem();
    if (pem.empty()) return {};
    const auto facts = net::certificate_facts(pem);
    if (!facts.ok()) return {};
    const auto token = gateway::JoinToken::make(facts->sha256, system_rng());
    return hosting::AgentToken{token.text(), token.id, codec::Sha256::of(token.secret).hex()};
  };
  out.create_secret = [&client](const Context& ctx, const codec::Json& secret) -> Status {
    TRY_VOID(client.create(ctx, meta::core::secrets(), secret));
    return {};
  };
  return out;
}

Status operate(const Context& ctx, const Globals& globals, const OperatorFlags& flags) {
  TRY_VOID(set_up_logs(globals, log::Level::kInfo));
  os::prefer_small_heap();
  TRY(const kube::Config config, kube::find_config(globals.kubeconfig, default_kubeconfig()));
  metrics::Registry registry;
  const std::unique_ptr<kube::Client> client =
      kube::connect(config, {.field_manager = "varda-operator", .metrics = &registry});
  runtime::Manager::Options options{.component = "varda-operator",
                                    .namespaces = flags.namespaces,
                                    .informers = controllers::filter_caches,
                                    .metrics = &registry};
  if (flags.elect) {
    TRY(options.election, election_of(flags));
  }
  runtime::Manager manager(*client, std::move(options));
  TRY(hosting::Options hosting_options,
      model_options(flags.controllers, flags.controllers.servers));
  TRY(hosting_options.fetch_arguments, allow_source_arguments(flags.allow_sources));
  registry::Target results;
  TRY(const auto results_client,
      connect_registry(flags.registry, "trainings have no place for their results", results));
  if (results_client) hosting_options.registry_url = results.url;
  hosting::CertificateIssuer::Options certificates;
  if (const std::string own = own_namespace(flags); !own.empty()) certificates.ns = own;
  const auto issuer = hosting::CertificateIssuer::create(*client, std::move(certificates));
  hosting_options.certificates = issuer.get();
  TRY(const auto authority, EdgeAuthority::open(flags.controllers.edge_authority, *client));
  hosting_options.edge_authority = [&authority = *authority] { return authority.pem(); };
  TRY([[maybe_unused]] const auto gateway_url,
      net::Url::parse(flags.job_gateway).context("--job-gateway"));
  hosting_options.jobs =
      jobs_of(flags.job_gateway, hosting_options.fetch_image, *authority, *client);
  hosting_options.jobs->namespaces = flags.namespaces;
  TRY(const auto file_digests, FileDigests::create({.allow_sources = flags.allow_sources}));
  hosting_options.file_digests = file_digests->reader();
  const auto controllers = controllers::add_all(manager, hosting_options);
  TRY(const auto admin,
      serve_admin(
          flags.admin, registry, [&manager] { return manager.ready(); }, controllers->metrics()));
  const std::jthread trimmer(
      [](const std::stop_token& stop) { os::keep_memory_trimmed(Context(stop)); });
  std::jthread reporter;
  if (results_client) {
    reporter = std::jthread([&](const std::stop_token& stop) {
      report_named_blobs(Context(stop), *client, flags.namespaces, *results_client, results,
                         holder_name(config.server, config.tls.ca_pem, flags.namespaces));
    });
  }
  return manager.run(ctx);
}

}  // namespace

void add_operator_command(Program program) {
  Globals& globals = program.globals;
  Run& chosen = program.chosen;

  const auto flags = std::make_shared<OperatorFlags>();
  CLI::App* command = program.daemon("operator", "run Varda's controllers against an API server");
  command->add_option("--kubeconfig", globals.kubeconfig,
                      "the server; default: $KUBECONFIG, then the pod's service account");
  command->add_option("--admin", flags->admin, "address of /healthz, /readyz and /metrics")
      ->default_str("127.0.0.1:8085");
  command->add_option(
      "--servers", flags->controllers.servers,
      "YAML file with the server of each frameworkType, merged over the built-in table");
  add_controller_flags(*command, flags->controllers);
  add_allow_source_flag(*command, flags->allow_sources);
  command
      ->add_option("--registry", flags->registry.url,
                   "URL of `varda registry`, which stores results of trainings; it keeps the "
                   "files that objects name; default: none")
      ->take_last();
  command
      ->add_option("--registry-token-file", flags->registry.token_file,
                   "file with the token of --registry; without the file, the operator does not "
                   "use the registry; default: none")
      ->take_last();
  command
      ->add_option("--registry-ca-file", flags->registry.ca_file,
                   "PEM certificates to trust for --registry, in addition to the machine's")
      ->take_last();
  command
      ->add_option("--job-gateway", flags->job_gateway,
                   "https://HOST:PORT where the agents of Jobs reach a gateway, for TrainingModels "
                   "of the cloud layer without a node")
      ->capture_default_str();
  command->add_option(
      "--namespace", flags->namespaces,
      "reconcile models and datasets of this namespace only (repeatable); default: all namespaces");
  command->add_flag("--leader-elect,!--no-leader-elect", flags->elect,
                    "only one of several operators is active at a time (default)");
  command
      ->add_option("--leader-election-namespace", flags->election_namespace,
                   "namespace of the Lease; default: the pod's namespace, else kube-system. "
                   "The Secret of the certificate authority is there too, outside of pods in "
                   "varda-system")
      ->group(kElectionGroup);
  CLI::AsNumberWithUnit milliseconds(
      std::map<std::string, std::int64_t>{{"ms", 1}, {"s", 1000}, {"m", 60'000}},
      CLI::AsNumberWithUnit::UNIT_REQUIRED, "TIME");
  milliseconds.description("");
  const auto time = [&](const char* name, std::int64_t& value, const char* what,
                        const char* otherwise) {
    command->add_option(name, value, what)
        ->transform(milliseconds)
        ->type_name("TIME")
        ->default_str(otherwise)
        ->group(kElectionGroup);
  };
  time("--leader-election-lease-duration", flags->lease_ms,
       "time without renewal after which another operator becomes leader", "15s");
  time("--leader-election-renew-deadline", flags->renew_ms,
       "time without a renewal after which the leader ends itself", "10s");
  time("--leader-election-retry-period", flags->retry_ms, "time between two checks of the Lease",
       "2s");
  command->callback([&chosen, &globals, flags] {
    chosen = [&globals, flags](const Context& ctx) { return operate(ctx, globals, *flags); };
  });
}

}  // namespace varda::app
