// gateway: lets nodes behind NAT connect, in front of any API server.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "admin.h"
#include "base/log.h"
#include "base/text.h"
#include "command.h"
#include "descriptors.h"
#include "gateway/authority.h"
#include "gateway/enrolment.h"
#include "gateway/gateway.h"
#include "gateway/join_secret.h"
#include "gateway/liveness.h"
#include "kube/config.h"
#include "net/client.h"
#include "net/server.h"
#include "net/url.h"
#include "os/file_system.h"
#include "registry_access.h"
#include "resolved_file.h"

namespace varda::app {
namespace {

constexpr const char* kLimitGroup = "Limits of the gateway";

struct GatewayFlags {
  std::string listen = "0.0.0.0:10443", admin = "127.0.0.1:8086";
  std::string ca_cert, ca_key, tls_cert, tls_key;
  std::vector<std::string> hosts, stream_targets;
  std::string join_secret;
  RegistryAccess registry;
  gateway::Limits limits;
  gateway::Streams::Options streams;
  std::int64_t stream_idle_ms = streams.idle_timeout.count();
};

constexpr std::chrono::milliseconds kSessionLinger{2000};
constexpr std::chrono::seconds kGatewayDrain{5};

Result<std::string> read(const std::string& file, const char* flag) {
  return os::read_file(os::real_file_system(), followed(file)).context(flag);
}

/// Reads the authority from files, else from the cluster.
Result<gateway::Authority> authority_of(const Context& ctx, const GatewayFlags& flags,
                                        const kube::Client& client) {
  if (flags.ca_cert.empty() != flags.ca_key.empty())
    return Error(Code::kInvalid, "--ca-cert and --ca-key go together");
  if (!flags.ca_cert.empty()) {
    TRY(std::string certificate, read(flags.ca_cert, "--ca-cert"));
    TRY(std::string key, read(flags.ca_key, "--ca-key"));
    return gateway::Authority::of({std::move(certificate), std::move(key)});
  }
  return gateway::Authority::open(ctx, client, system_clock().wall());
}

/// Retries until the API server answers.
Result<gateway::Authority> prepare(const Context& ctx, const GatewayFlags& flags,
                                   const kube::Client& client) {
  Duration pause = std::chrono::milliseconds(200);
  while (true) {
    auto authority = authority_of(ctx, flags, client);
    if (authority.ok()) {
      const Status published = authority->publish(ctx, client, system_clock().wall());
      if (published.ok()) return authority;
      authority = published.error();
    }
    const Code code = authority.error().code();
    if ((code != Code::kUnavailable && code != Code::kTimeout) || ctx.done()) return authority;
    log::warn("API server not reachable, retrying", {{"error", authority.error()}});
    TRY_VOID(ctx.sleep_for(pause));
    pause = std::min<Duration>(pause * 2, std::chrono::seconds(5));
  }
}

Status serve_gateway(const Context& ctx, const Globals& globals, const GatewayFlags& flags) {
  TRY_VOID(set_up_logs(globals, log::Level::kInfo));
  gateway::Limits limits = flags.limits;
  limits.connections_max = make_room_for_connections(limits.connections_max);
  TRY(const kube::Config config, kube::find_config(globals.kubeconfig, default_kubeconfig()));
  metrics::Registry registry;
  const std::unique_ptr<kube::Client> client =
      kube::connect(config, {.field_manager = "varda-gateway", .metrics = &registry});
  // The port is open from the start: a gateway without its API server is alive and must not be
  // restarted.
  std::mutex mutex;
  const gateway::Gateway* serving = nullptr;
  const auto serve_by = [&](const gateway::Gateway* gateway) {
    const std::lock_guard lock(mutex);
    serving = gateway;
  };
  TRY(const auto admin, serve_admin(flags.admin, registry, [&mutex, &serving] {
        const std::lock_guard lock(mutex);
        return serving != nullptr && serving->ready();
      }));
  TRY(const gateway::Authority authority, prepare(ctx, flags, *client));
  gateway::Enrolment::Options enrolling{.metrics = &registry};
  if (!flags.join_secret.empty()) {
    TRY(enrolling.join_secret,
        gateway::parse_join_secret(flags.join_secret).context("--join-secret"));
  }
  gateway::Enrolment enrolment(*client, authority, enrolling);
  gateway::Liveness liveness(*client, {});

  gateway::Gateway::Options options;
  TRY(const std::unique_ptr<net::HttpClient> registry_client,
      connect_registry(flags.registry, "uploads of nodes are refused", options.uploads.registry));
  options.registry = registry_client.get();
  options.uploads.metrics = &registry;
  options.streams = flags.streams;
  options.streams.idle_timeout = std::chrono::milliseconds(flags.stream_idle_ms);
  TRY(options.streams.targets,
      net::Destinations::create(flags.stream_targets).context("--allow-stream-target"));
  options.streams.sign = [&authority](net::ProxyHeader& header) {
    return authority.sign(header, system_clock().wall());
  };
  options.client = client.get();
  options.sessions = &liveness;
  options.edge_node_changed = [&liveness](const runtime::Change& change) {
    liveness.changed(change);
  };
  options.enrolment = [&enrolment](const Context& request_ctx, const net::Request& request) {
    return enrolment.handle(request_ctx, request);
  };
  options.limits = limits;
  options.limits.session_linger = kSessionLinger;
  options.metrics = &registry;
  TRY(const std::unique_ptr<gateway::Gateway> gateway,
      gateway::Gateway::create(std::move(options)));
  serve_by(gateway.get());
  const std::shared_ptr<void> clear_serve(nullptr, [&serve_by](void*) { serve_by(nullptr); });

  net::Server::Options listen = gateway::server_options(limits);
  listen.listen = flags.listen;
  listen.receive = [&gateway](const net::Request& head) { return gateway->receive(head); };
  std::vector<std::string> hosts = flags.hosts;
  hosts.push_back(flags.listen.substr(0, flags.listen.rfind(':')));
  TRY(listen.tls, authority.server(hosts));
  if (flags.tls_cert.empty() != flags.tls_key.empty())
    return Error(Code::kInvalid, "--tls-cert and --tls-key go together");
  if (!flags.tls_cert.empty()) {
    TRY(listen.tls->certificate_pem, read(flags.tls_cert, "--tls-cert"));
    TRY(listen.tls->key_pem, read(flags.tls_key, "--tls-key"));
  }
  TRY(const auto server, net::Server::create(std::move(listen), gateway->handler())
                             .context("--listen " + flags.listen));
  log::info("gateway listens for nodes", {{"gateway", server->address()}});
  std::jthread token_thread;  // maintains the join token that agents share
  if (enrolling.join_secret) {
    token_thread = std::jthread([&](const std::stop_token& stop) {
      gateway::run_join_secret(Context(stop), *client, *enrolling.join_secret,
                               authority.ca_sha256(), system_rng());
    });
  }
  while (ctx.sleep_for(std::chrono::hours(24)).ok()) {
  }
  log::info("stopping");
  // Watches end at once, and the nodes reconnect to the next gateway. Pending writes of nodes still
  // go to the API server.
  server->drain();
  gateway->stop();
  server->stop(kGatewayDrain);
  return {};
}

}  // namespace

void add_gateway_command(Program program) {
  Globals& globals = program.globals;
  Run& chosen = program.chosen;
  const auto flags = std::make_shared<GatewayFlags>();
  CLI::App* command = program.daemon(
      "gateway", "accept connections from nodes behind NAT; each node reads only its own objects");
  command->add_option("--kubeconfig", globals.kubeconfig,
                      "the server; default: $KUBECONFIG, then the pod's service account");
  command->add_option("--listen", flags->listen, "address and port for the nodes")
      ->default_str("0.0.0.0:10443");
  command->add_option("--host", flags->hosts,
                      "name or address of the gateway for nodes, for the certificate (repeatable)");
  command->add_option("--join-secret", flags->join_secret,
                      "NAMESPACE/NAME of a Secret for the join token (key token) that the agents "
                      "of a DaemonSet share; default: none");
  command->add_option("--ca-cert", flags->ca_cert,
                      "PEM of the authority of the edge; default: the Secret "
                      "varda-system/varda-gateway-ca, created if missing");
  command->add_option("--ca-key", flags->ca_key, "PEM of the key of --ca-cert");
  command->add_option("--tls-cert", flags->tls_cert,
                      "PEM of another certificate, then its chain; default: one of the authority");
  command->add_option("--tls-key", flags->tls_key, "PEM of the key of --tls-cert");
  command
      ->add_option("--registry", flags->registry.url,
                   "URL of `varda registry` for files that nodes upload; default: none")
      ->take_last();
  command
      ->add_option("--registry-token-file", flags->registry.token_file,
                   "file with the token of --registry; without the file, nodes cannot upload; "
                   "default: none")
      ->take_last();
  command
      ->add_option("--registry-ca-file", flags->registry.ca_file,
                   "PEM certificates to trust for --registry, in addition to the machine's")
      ->take_last();
  command
      ->add_option("--allow-stream-target", flags->stream_targets,
                   "address block, such as 127.0.0.0/8, that streams of workers may reach though "
                   "it is loopback, link-local or a metadata service (repeatable); default: none")
      ->group(kLimitGroup);
  command->add_option("--admin", flags->admin, "address of /healthz, /readyz and /metrics")
      ->default_str("127.0.0.1:8086");
  command
      ->add_option("--max-connections", flags->limits.connections_max,
                   "connections of nodes; beyond that, the connection whose client was silent "
                   "longest is closed")
      ->group(kLimitGroup)
      ->default_str(std::to_string(flags->limits.connections_max))
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--max-body-bytes", flags->limits.body_bytes_max,
                   "largest request of a node, such as its status; 413 beyond")
      ->group(kLimitGroup)
      ->default_str(std::to_string(flags->limits.body_bytes_max))
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--max-streams", flags->streams.all_max,
                   "streams of all nodes to federated jobs; 429 beyond")
      ->group(kLimitGroup)
      ->default_str(std::to_string(flags->streams.all_max))
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--max-node-streams", flags->streams.per_node_max,
                   "streams of one node; 429 beyond")
      ->group(kLimitGroup)
      ->default_str(std::to_string(flags->streams.per_node_max))
      ->check(CLI::PositiveNumber);
  CLI::AsNumberWithUnit stream_time(
      std::map<std::string, std::int64_t>{{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}},
      CLI::AsNumberWithUnit::UNIT_REQUIRED, "TIME");
  stream_time.description("");
  command
      ->add_option("--stream-idle-timeout", flags->stream_idle_ms,
                   "a stream without a byte in either direction for so long ends")
      ->transform(stream_time)
      ->type_name("TIME")
      ->group(kLimitGroup)
      ->default_str("10m")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--upstream-threads", flags->limits.upstream.threads,
                   "requests to the API server at a time")
      ->group(kLimitGroup)
      ->default_str(std::to_string(flags->limits.upstream.threads))
      ->check(CLI::Range(1, 256));
  command->callback([&chosen, &globals, flags] {
    chosen = [&globals, flags](const Context& ctx) { return serve_gateway(ctx, globals, *flags); };
  });
}

}  // namespace varda::app
