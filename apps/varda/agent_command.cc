// agent: the edge agent, with or without a pod runner.
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>

#include "admin.h"
#include "agent/agent.h"
#include "agent/identity/identity.h"
#include "agent/identity/issued.h"
#include "command.h"
#include "download_flags.h"
#include "kube/config.h"
#include "limit_flags.h"
#include "meta/node_address.h"
#include "net/client.h"
#include "net/local_address.h"
#include "net/url.h"
#include "node/containerd_driver.h"
#include "node/process_driver.h"
#include "os/memory.h"
#include "resolved_file.h"

namespace varda::app {
namespace {

constexpr const char* kLinkGroup = "Links to the server, other nodes and workers";
constexpr const char* kJobGroup = "Jobs of the cluster";

struct AgentFlags {
  std::string node, layer = "edge", runner = "none", data_dir, address, admin, on_stop = "leave",
                    until = "stopped";
  std::string containerd_socket = node::kContainerdSocket, pod_network = "cni";
  std::string gateway, join_token_file;
  std::string peer_listen, peer_url, worker_listen, stream_gateway;
  long watch_seconds = 10;
  std::vector<std::string> images, dataset_roots, hidden;
  NodeLimits limits;
  DownloadFlags download;
};

/// Reads the join token, which only a node without a certificate needs. A program that can read the
/// token can enrol as the node: a mode among `open_modes` is logged. kNotFound: the file is missing
/// or empty, as in the volume of a Secret that does not exist yet.
Result<std::string> read_join_token(const std::filesystem::path& file, unsigned open_modes) {
  auto& fs = os::real_file_system();
  const std::filesystem::path real = followed(file);
  auto text = os::read_file(fs, real, 4096);
  if (text.ok() && text->empty())
    return Error(Code::kNotFound, "--join-token-file " + file.string() + " is empty");
  if (!text.ok() && text.error().code() == Code::kNotFound)
    return std::move(text).error().context("--join-token-file");
  if (!text.ok()) return std::move(text).error().context("--join-token-file").as_terminal();
  TRY(const auto info, fs.stat(real));
  if (info && (info->mode & open_modes) != 0)
    log::warn("other users of this machine can read the join token", {{"file", file.string()}});
  return std::move(*text);
}

Result<std::unique_ptr<agent::identity::Identity>> open_identity(const AgentFlags& flags) {
  agent::identity::Options options;
  options.node_name = flags.node;
  options.gateway = flags.gateway;
  options.directory = std::filesystem::absolute(flags.data_dir).lexically_normal() / "identity";
  if (!flags.join_token_file.empty()) {
    // In the pod of a Job the file belongs to the pod's group.
    const unsigned open_modes = flags.until == "stopped" ? 0077 : 0007;
    options.join_token = [open_modes, file = std::filesystem::absolute(flags.join_token_file)] {
      return read_join_token(file, open_modes);
    };
  }
  return agent::identity::Identity::open(std::move(options));
}

/// The agent's connection to its API server: through a gateway with the node's own certificate, or
/// by a kubeconfig.
struct Upstream {
  std::unique_ptr<agent::identity::Identity> identity;  // null: by kubeconfig
  std::unique_ptr<kube::Client> client;
  std::jthread renewal;  // renews `identity`; destroyed first
};

Result<Upstream> reach_upstream(const Context& ctx, const Globals& globals, const AgentFlags& flags,
                                metrics::Registry& registry) {
  Upstream upstream;
  kube::Client::Options options{.field_manager = "varda-agent", .metrics = &registry};
  if (flags.gateway.empty()) {
    if (!flags.join_token_file.empty())
      return Error(Code::kInvalid, "--join-token-file needs --gateway");
    TRY(const kube::Config config, kube::find_config(globals.kubeconfig, ""));
    upstream.client = kube::connect(config, std::move(options));
    return upstream;
  }
  if (!globals.kubeconfig.empty())
    return Error(Code::kInvalid, "--gateway and --kubeconfig exclude each other");
  TRY(upstream.identity, open_identity(flags));
  TRY_VOID(upstream.identity->enrol(ctx));
  options.base_url = flags.gateway;
  while (options.base_url.ends_with('/')) options.base_url.pop_back();
  upstream.client =
      std::make_unique<kube::Client>(upstream.identity->transport(), std::move(options));
  upstream.renewal =
      std::jthread([identity = upstream.identity.get()](const std::stop_token& stop) {
        identity->run(Context(stop));
      });
  return upstream;
}

/// Whether a loopback address of this machine means the same where the gateway runs.
meta::Reporter reporter_to(const std::string& gateway) {
  const auto url = net::Url::parse(gateway);
  const auto address =
      url.ok() ? net::local_address_to(url->host, url->port) : Result<std::string>(url.error());
  const bool is_loopback =
      address.ok() && meta::address_scope(*address) == meta::AddressScope::kLoopback;
  return is_loopback ? meta::Reporter::kThisMachine : meta::Reporter::kAnotherMachine;
}

/// Fills in the node's name and the gateway from the environment, where a Pod has them.
Result<AgentFlags> completed(AgentFlags flags, const Globals& globals) {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (flags.node.empty()) flags.node = variable("NODE_NAME");
  if (flags.node.empty()) return Error(Code::kInvalid, "agent needs --node NAME, or $NODE_NAME");
  if (flags.gateway.empty() && globals.kubeconfig.empty())
    flags.gateway = variable("VARDA_GATEWAY");
  return flags;
}

Status run_agent(const Context& ctx, const Globals& globals, const AgentFlags& parsed) {
  TRY_VOID(set_up_logs(globals, log::Level::kInfo));
  TRY(const AgentFlags flags, completed(parsed, globals));
  os::prefer_small_heap();
  agent::Options options;
  options.node_name = flags.node;
  options.layer = flags.layer;
  options.data_directory = std::filesystem::absolute(flags.data_dir).lexically_normal();
  options.runner = flags.runner == "process"      ? agent::Runner::kProcess
                   : flags.runner == "containerd" ? agent::Runner::kContainerd
                                                  : agent::Runner::kNone;
  options.containerd_socket = flags.containerd_socket;
  if (flags.pod_network == "node") options.pod_network = node::PodNetwork::kNode;
  options.on_stop =
      flags.on_stop == "end" ? agent::OnStop::kEndContainers : agent::OnStop::kLeaveContainers;
  if (!flags.address.empty()) {
    const auto pods = options.runner == agent::Runner::kNone ? agent::PodsListen::kElsewhere
                                                             : agent::PodsListen::kOnThisNode;
    TRY_VOID(agent::check_node_address(flags.address, pods).context("--address"));
  }
  options.until = flags.until == "installed"    ? agent::Until::kInstalled
                  : flags.until == "unassigned" ? agent::Until::kUnassigned
                                                : agent::Until::kStopped;
  options.node_address = flags.address;
  options.watch_timeout = std::chrono::seconds(flags.watch_seconds);
  options.artifact_capacity_bytes = flags.limits.artifact_bytes_max;
  options.artifact_limits = flags.limits.archives;
  options.replica_bytes_max = flags.limits.replica_bytes_max;
  for (const std::string& root : flags.limits.file_roots) options.file_roots.emplace_back(root);
  for (const std::string& root : flags.dataset_roots)
    options.dataset_roots.push_back(std::filesystem::absolute(root).lexically_normal());
  for (const std::string& text : flags.images) {
    TRY(auto image, node::parse_image_flag(text).context("--image"));
    options.images.insert(std::move(image));
  }
  // A pod that reads one of these files could act as the node.
  std::vector<std::string> hidden = flags.hidden;
  for (const std::string& file : {globals.kubeconfig, flags.join_token_file}) {
    if (!file.empty()) hidden.push_back(file);
  }
  for (const std::string& path : hidden)
    options.hidden_from_pods.push_back(std::filesystem::absolute(path).lexically_normal());
  metrics::Registry registry;
  // The port is open from the start: a node without its first certificate is alive and must not be
  // restarted.
  std::atomic<bool> enrolled{false};
  std::shared_ptr<void> port;
  if (!flags.admin.empty()) {
    TRY(port, serve_admin(flags.admin, registry, [&enrolled] { return enrolled.load(); }));
  }
  const Result<Upstream> upstream = reach_upstream(ctx, globals, flags, registry);
  // A stop may arrive while the node waits for its first certificate.
  if (!upstream.ok()) return ctx.stopped() ? Status() : upstream.error();
  if (!flags.gateway.empty()) options.reporter = reporter_to(flags.gateway);
  // Requests to model servers use no proxy; only downloads of archives do. Model servers run on
  // this node, with certificates for the host that clients use, not for the pod.
  net::ClientOptions servers;
  servers.tls.verify = false;
  const std::unique_ptr<net::HttpClient> http = net::make_client(servers);
  TRY(const net::ClientOptions download, download_client_options(flags.download));
  const std::unique_ptr<net::HttpClient> downloads = net::make_client(download);
  options.downloads = downloads.get();
  options.trusting_client = [&download](const std::string& ca_pem) {
    net::ClientOptions trusting = download;
    trusting.extra_ca_pem += "\n" + ca_pem;
    return net::make_client(trusting);
  };
  if (const agent::identity::Identity* identity = upstream->identity.get()) {
    options.peer_credentials = [identity] { return identity->credentials(); };
  } else {
    options.peer_credentials =
        agent::identity::issued_credentials(options.data_directory / "identity", flags.node);
  }
  options.peer_listen = flags.peer_listen;
  options.peer_url = flags.peer_url;
  options.worker_socket = options.data_directory / "worker/worker.sock";
  options.worker_listen = flags.worker_listen;
  std::unique_ptr<net::TunnelOpener> opener;
  if (upstream->identity) {
    options.gateway = &upstream->identity->opener();
    options.gateway_url = flags.gateway;
  } else if (!flags.stream_gateway.empty()) {
    opener = agent::identity::issued_opener(options.peer_credentials);
    options.gateway = opener.get();
    options.gateway_url = flags.stream_gateway;
  }
  if (options.gateway != nullptr) {
    while (options.gateway_url.ends_with('/')) options.gateway_url.pop_back();
  }
  options.metrics = &registry;
  TRY(const auto agent, agent::Agent::open(std::move(options), *upstream->client, *http));

  enrolled = true;
  if (!port) {
    auto admin =
        serve_admin("unix:" + (std::filesystem::absolute(flags.data_dir) / "admin.sock").string(),
                    registry, [] { return true; });
    // The agent runs without the port: a path too long for a socket must not stop the models.
    if (admin.ok()) {
      port = std::move(*admin);
    } else {
      log::warn("health port not served", {{"error", admin.error()}});
    }
  }
  // A node has little memory, and an agent is mostly idle.
  const std::jthread trimmer(
      [](const std::stop_token& stop) { os::keep_memory_trimmed(Context(stop)); });
  return agent->run(ctx);
}

}  // namespace

void add_agent_commands(Program program) {
  const auto flags = std::make_shared<AgentFlags>();
  Globals& globals = program.globals;
  Run& chosen = program.chosen;
  CLI::App* command = program.daemon(
      "agent", "keep one node's models installed and served, also while the node is offline");
  command->add_option("--node", flags->node, "name of this node; default: $NODE_NAME");
  command->add_option("--layer", flags->layer, "cloud, edge or device")
      ->check(CLI::IsMember({"cloud", "edge", "device"}));
  command
      ->add_option("--runner", flags->runner,
                   "pod runner of the node: none (a kubelet runs the pods), process (child "
                   "processes of the agent) or containerd")
      ->check(CLI::IsMember({"none", "process", "containerd"}));
  command
      ->add_option("--containerd-socket", flags->containerd_socket,
                   "address of containerd (runner containerd)")
      ->capture_default_str()
      ->group(kContainerGroup);
  command
      ->add_option("--pod-network", flags->pod_network,
                   "network of pods without hostNetwork (runner containerd): cni (separate "
                   "networks) or node (the node's network)")
      ->check(CLI::IsMember({"cni", "node"}))
      ->group(kContainerGroup);
  command->add_option("--data-dir", flags->data_dir, "directory for all data of this node")
      ->required();
  command->add_option("--kubeconfig", globals.kubeconfig,
                      "the API server and this node's credentials");
  command->add_option(
      "--gateway", flags->gateway,
      "https://HOST:PORT of the gateway, instead of a kubeconfig; default: $VARDA_GATEWAY");
  command->add_option("--join-token-file", flags->join_token_file,
                      "file with the token of `varda join-token`, or with the shared token of "
                      "agents; read until the node has "
                      "enrolled; the agent waits for a missing file");
  command
      ->add_option(
          "--watch-seconds", flags->watch_seconds,
          "seconds until the agent renews its watch, lengthened at random by up to half; node and "
          "server notice a dead "
          "link within that time. Each renewal is one request. A gateway ends a watch after 15 s")
      ->capture_default_str()
      ->group(kLinkGroup)
      ->check(CLI::Range(2, 600));
  command
      ->add_option("--until", flags->until,
                   "the agent of a Job ends: installed (all files of its run are on the disk) or "
                   "unassigned (its run has ended); stopped: by a signal only")
      ->group(kJobGroup)
      ->check(CLI::IsMember({"stopped", "installed", "unassigned"}))
      ->capture_default_str();
  command->add_option("--address", flags->address,
                      "IP address where other machines reach this node; default: a random address "
                      "of 127.0.0.0/8, kept for later "
                      "starts and not reported to other machines");
  command->add_option("--image", flags->images,
                      "NAME=COMMAND: pods of this image run that command (runner process)");
  command->add_option("--hide-from-pods", flags->hidden,
                      "file or directory to hide from pods, in addition to the data directory, the "
                      "kubeconfig and the join token "
                      "(runner process); default: none");
  command->add_option("--dataset-root", flags->dataset_roots,
                      "the agent may read datasets below this directory; default: none");
  command
      ->add_option(
          "--peer-listen", flags->peer_listen,
          "address where other nodes download shared files, as 0.0.0.0:10445, or \"off\"; default: "
          "port 10445 of the node's address if other nodes can reach it, or a free port there")
      ->group(kLinkGroup);
  command
      ->add_option(
          "--peer-url", flags->peer_url,
          "https://HOST:PORT where other nodes reach that port; default: the address itself")
      ->group(kLinkGroup);
  command
      ->add_option("--worker-listen", flags->worker_listen,
                   "address where workers of jobs reach the agent, in addition to "
                   "DATA-DIR/worker/worker.sock, as 127.0.0.1:10446; "
                   "default: none")
      ->group(kLinkGroup);
  // `varda up` sets this flag for its agents, which reach the API server without the gateway.
  command
      ->add_option("--stream-gateway", flags->stream_gateway,
                   "https://HOST:PORT of the gateway that forwards streams of workers; default: "
                   "the gateway of the link")
      ->group(kLinkGroup);
  add_limit_flags(*command, flags->limits);
  add_download_flags(*command, flags->download);
  command
      ->add_option("--on-stop", flags->on_stop,
                   "leave the containers running for the next agent, or end them")
      ->check(CLI::IsMember({"leave", "end"}))
      ->group(kContainerGroup);
  command->add_option("--admin", flags->admin,
                      "address of /healthz, /readyz and /metrics; default: DATA-DIR/admin.sock");
  command->callback([&chosen, &globals, flags] {
    chosen = [&globals, flags](const Context& ctx) { return run_agent(ctx, globals, *flags); };
  });
}

}  // namespace varda::app
