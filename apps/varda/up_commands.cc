// up: runs the control plane in this process and one supervised `varda agent` for each node. down:
// ends all of them.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <unistd.h>

#include "agent/agent.h"
#include "apiserver/standalone.h"
#include "base/log.h"
#include "base/text.h"
#include "codec/digest.h"
#include "command.h"
#include "control_plane.h"
#include "controller_flags.h"
#include "datadir/data_directory.h"
#include "datadir/supervisor.h"
#include "datadir/up_state.h"
#include "download_flags.h"
#include "file_digests.h"
#include "node/containerd_driver.h"
#include "node/end_containers.h"
#include "node/process_driver.h"
#include "os/detach.h"
#include "os/file_system.h"

namespace varda::app {
namespace {

namespace fs = std::filesystem;

struct UpFlags {
  std::string data_dir, listen, gateway, registry, driver, containerd_socket, pod_network;
  std::vector<std::string> nodes, images;
  ControllerFlags controllers;
  ApiLimits limits;
  AuditFlags audit;
  NodeLimits node_limits;
  std::vector<std::string> dataset_roots, addresses;
  DownloadFlags download;
  bool detach = false;
};

constexpr std::chrono::milliseconds kAgentGrace{15000};
constexpr std::chrono::milliseconds kContainerGrace{15000};
constexpr const char* kRegistryListen = "127.0.0.1:8092";
constexpr const char* kOff = "off";              // empties a remembered flag
constexpr std::chrono::seconds kNodesReady{60};  // only a hang takes as long

std::string names_of(const std::vector<datadir::NodeSpec>& nodes) {
  return join(nodes, ", ", [](const auto& node) { return node.name; });
}

struct DatasetRoot {
  std::string node;  // "": every node
  fs::path directory;
};

struct NodeAddress {
  std::string node;  // "": node ports, and every node that is not in the cloud layer
  std::string address;
};

/// Values of the flags, else those of an earlier run.
struct Settings {
  fs::path data_dir;
  std::string listen;
  bool listen_elsewhere = false;  // use any free port if the port is in use
  std::string gateway;            // "": none
  bool gateway_elsewhere = false;
  std::string registry;  // "off": none
  bool registry_elsewhere = false;
  std::vector<datadir::NodeSpec> nodes;
  std::map<std::string, std::string> images;
  std::string driver, containerd_socket, pod_network;
  hosting::Options inference_models;
  ApiLimits limits;
  std::optional<apiserver::AuditLog::Options> audit;
  NodeLimits node_limits;
  std::vector<DatasetRoot> dataset_roots;
  std::vector<NodeAddress> addresses;
  DownloadFlags download;
  std::map<std::string, std::string> proxy_environment;
};

/// kInvalid: `text`, the value of a flag with [NODE=], names a node that is not declared.
Status check_declared(const std::string& text, const std::string& node,
                      const std::vector<datadir::NodeSpec>& nodes) {
  const auto has_name = [&](const datadir::NodeSpec& one) { return one.name == node; };
  if (node.empty() || std::any_of(nodes.begin(), nodes.end(), has_name)) return {};
  return Error(Code::kInvalid, "\"" + text + "\": there is no node \"" + node + "\"");
}

/// [NODE=]DIR. A text that begins with '/' or '.' is a directory, also with '=' in it.
Result<DatasetRoot> parse_dataset_root(const std::string& text) {
  DatasetRoot out;
  std::string directory = text;
  const std::size_t equals = text.find('=');
  if (equals != std::string::npos && !text.starts_with("/") && !text.starts_with(".")) {
    out.node = text.substr(0, equals);
    directory = text.substr(equals + 1);
  }
  if (directory.empty())
    return Error(Code::kInvalid, "\"" + text + "\": must be [NODE=]DIR with a directory");
  out.directory = fs::absolute(directory).lexically_normal();
  return out;
}

/// [NODE=]IP. As in a URL, an IPv6 address may have brackets.
Result<NodeAddress> parse_node_address(const std::string& text) {
  const std::size_t equals = text.find('=');
  NodeAddress out{.node = equals == std::string::npos ? "" : text.substr(0, equals),
                  .address = equals == std::string::npos ? text : text.substr(equals + 1)};
  if (out.address.starts_with('[') && out.address.ends_with(']'))
    out.address = out.address.substr(1, out.address.size() - 2);
  return out;
}

/// The values of a flag with [NODE=]. The flag replaces the remembered values, and "off" removes
/// them. A remembered value may name a node that is no longer declared.
template <typename Item>
Result<std::vector<Item>> items_of(const std::vector<std::string>& values,
                                   const std::vector<std::string>& remembered,
                                   const std::vector<datadir::NodeSpec>& nodes,
                                   Result<Item> (*parse)(const std::string&)) {
  std::vector<Item> out;
  if (values == std::vector<std::string>{kOff}) return out;
  for (const std::string& text : values.empty() ? remembered : values) {
    TRY(Item item, parse(text));
    if (!values.empty()) TRY_VOID(check_declared(text, item.node, nodes));
    out.push_back(std::move(item));
  }
  return out;
}

Result<std::vector<NodeAddress>> addresses_of(const std::vector<std::string>& values,
                                              const std::vector<std::string>& remembered,
                                              const std::vector<datadir::NodeSpec>& nodes) {
  TRY(std::vector<NodeAddress> out, items_of(values, remembered, nodes, parse_node_address));
  for (const NodeAddress& one : out) {
    const Status usable = agent::check_node_address(one.address, agent::PodsListen::kOnThisNode);
    if (usable.ok()) continue;
    return Error(
        Code::kInvalid,
        usable.error().message() +
            (values.empty() ? ", which an earlier `varda up` set: give another value, or \"off\""
                            : ""));
  }
  return out;
}

/// The address where the node's pods with hostNetwork listen, such as models at the edge. "" means
/// a loopback address for this node alone.
std::string address_of(const Settings& settings, const datadir::NodeSpec& node) {
  std::string out;
  for (const NodeAddress& one : settings.addresses) {
    if (one.node == node.name) return one.address;
    if (one.node.empty() && node.layer != "cloud") out = one.address;
  }
  return out;
}

template <typename Item>
std::vector<std::string> texts_of(const std::vector<Item>& items,
                                  const std::function<std::string(const Item&)>& value) {
  std::vector<std::string> out;
  for (const Item& item : items)
    out.push_back((item.node.empty() ? "" : item.node + "=") + value(item));
  return out;
}

Result<Settings> settings_of(const UpFlags& flags) {
  Settings settings;
  TRY(settings.data_dir, data_dir_of(flags.data_dir));
  TRY(const std::optional<datadir::UpState> before, datadir::read_state(settings.data_dir));
  const auto chosen = [](const std::string& flag, const std::string& last, const char* usual) {
    return !flag.empty() ? flag : !last.empty() ? last : std::string(usual);
  };
  settings.driver = chosen(flags.driver, before ? before->driver : "", "process");
  settings.containerd_socket = chosen(
      flags.containerd_socket, before ? before->containerd_socket : "", node::kContainerdSocket);
  settings.pod_network = chosen(flags.pod_network, before ? before->pod_network : "", "cni");
  settings.containerd_socket = fs::absolute(settings.containerd_socket).lexically_normal();
  for (const std::string& text : flags.nodes) {
    TRY(datadir::NodeSpec node, datadir::parse_node(text));
    for (const datadir::NodeSpec& other : settings.nodes) {
      if (other.name == node.name)
        return Error(Code::kInvalid, "--node " + node.name + " occurs twice");
    }
    settings.nodes.push_back(std::move(node));
  }
  if (settings.nodes.empty())
    settings.nodes = before && !before->nodes.empty()
                         ? before->nodes
                         : std::vector<datadir::NodeSpec>{{"cloud", "cloud"}, {"edge0", "edge"}};
  if (before) settings.images = before->images;
  for (const std::string& text : flags.images) {
    TRY(auto image, node::parse_image_flag(text).context("--image"));
    settings.images[image.first] = image.second;
  }
  const fs::path servers = flags.controllers.servers.empty() ? settings.data_dir / "servers.yaml"
                                                             : fs::path(flags.controllers.servers);
  TRY(const auto servers_file, os::real_file_system().stat(servers));
  const bool reported = servers_file || !flags.controllers.servers.empty();
  TRY(settings.inference_models, model_options(flags.controllers, reported ? servers : fs::path()));
  settings.limits = flags.limits;
  TRY(settings.audit, audit_options(flags.audit));
  settings.node_limits = flags.node_limits;
  for (std::string& root : settings.node_limits.file_roots)
    root = fs::absolute(root).lexically_normal().string();
  const datadir::UpState last = before ? *before : datadir::UpState();
  TRY(settings.dataset_roots,
      items_of(flags.dataset_roots, last.dataset_roots, settings.nodes, parse_dataset_root)
          .context("--dataset-root"));
  TRY(settings.addresses,
      addresses_of(flags.addresses, last.addresses, settings.nodes).context("--address"));
  // Errors in these flags show here, not in the log of each agent.
  DownloadFlags download = flags.download;
  // A first file server is often on this machine, and one user runs everything here.
  download.allow_sources.insert(download.allow_sources.begin(), kLoopbackSources.begin(),
                                kLoopbackSources.end());
  TRY([[maybe_unused]] const net::ClientOptions checked, download_client_options(download));
  TRY(settings.inference_models.fetch_arguments, allow_source_arguments(download.allow_sources));
  settings.proxy_environment = proxy_environment();
  settings.download = std::move(download);
  const bool has_listen = !flags.listen.empty();
  settings.listen = has_listen ? flags.listen : "127.0.0.1:6443";
  // With port 0 the last port is tried first, so that kubeconfigs stay valid.
  const bool any = settings.listen.ends_with(":0");
  if (before && !before->address.empty() && (any || !has_listen)) settings.listen = before->address;
  settings.listen_elsewhere = any || !has_listen;
  // Further nodes know the former address of the gateway.
  const std::string gateway_before = before ? before->gateway : "";
  settings.gateway = flags.gateway.empty()   ? gateway_before
                     : flags.gateway == kOff ? ""
                                             : flags.gateway;
  settings.gateway_elsewhere = flags.gateway.ends_with(":0");
  if (settings.gateway_elsewhere && !gateway_before.empty()) settings.gateway = gateway_before;
  // Models name the former address of the registry.
  settings.registry = chosen(flags.registry, before ? before->registry : "", kRegistryListen);
  const bool any_registry = flags.registry.ends_with(":0");
  settings.registry_elsewhere = any_registry || flags.registry.empty();
  if (any_registry && before && !before->registry.empty() && before->registry != kOff)
    settings.registry = before->registry;
  for (const char* everywhere : {"0.0.0.0:", "[::]:"}) {
    if (settings.registry.starts_with(everywhere))
      return Error(Code::kInvalid,
                   "--registry " + settings.registry +
                       ": must be one address of this machine, because Models name it in URLs");
  }
  return settings;
}

datadir::Supervisor::Options agent_options(const Settings& settings, const datadir::NodeSpec& node,
                                           const ControlPlane& control_plane) {
  const fs::path directory = datadir::node_directory(settings.data_dir, node.name);
  const std::string url = control_plane.url();
  datadir::Supervisor::Options options;
  options.name = "agent " + node.name;
  options.record = directory / "agent.json";
  options.data = directory / "data";
  options.process.program = os::self_path().string();
  options.process.arguments = {"agent",
                               "--node",
                               node.name,
                               "--layer",
                               node.layer,
                               "--runner",
                               settings.driver,
                               "--kubeconfig",
                               (directory / "agent.kubeconfig").string(),
                               "--data-dir",
                               (directory / "data").string()};
  // The gateway signs identities, so that programs of this machine cannot choose them.
  if (const std::string gateway = control_plane.gateway_address(); !gateway.empty()) {
    options.process.arguments.push_back("--stream-gateway");
    options.process.arguments.push_back(apiserver::url_of(gateway));
  }
  if (settings.driver == "containerd") {
    options.process.arguments.push_back("--containerd-socket");
    options.process.arguments.push_back(settings.containerd_socket);
    options.process.arguments.push_back("--pod-network");
    options.process.arguments.push_back(settings.pod_network);
  }
  if (const std::string address = address_of(settings, node); !address.empty()) {
    options.process.arguments.push_back("--address");
    options.process.arguments.push_back(address);
  }
  if (settings.driver == "process") {
    options.process.arguments.push_back("--hide-from-pods");
    options.process.arguments.push_back(settings.data_dir.string());
  }
  for (const auto& [name, command] : settings.images) {
    options.process.arguments.push_back("--image");
    options.process.arguments.push_back(name + "=" + command);
  }
  for (std::string& argument : arguments_of(settings.node_limits))
    options.process.arguments.push_back(std::move(argument));
  for (const DatasetRoot& root : settings.dataset_roots) {
    if (!root.node.empty() && root.node != node.name) continue;
    options.process.arguments.push_back("--dataset-root");
    options.process.arguments.push_back(root.directory.string());
  }
  for (const std::string& argument : arguments_of(settings.download))
    options.process.arguments.push_back(argument);
  options.process.environment = {
      {"PATH", "/usr/local/bin:/usr/bin:/bin"}, {"HOME", directory.string()}, {"LANG", "C.UTF-8"}};
  // A proxy's URL may contain a password, so the agent's fingerprint has only a digest.
  std::string proxies;
  for (const auto& [name, value] : settings.proxy_environment) {
    options.process.environment.emplace(name, value);
    proxies += name + "=" + value + "\n";
  }
  options.process.working_directory = directory;
  options.process.standard_output = directory / "agent.log";
  options.process.limits = {{"core", 0}};
  options.fingerprint = std::string(VARDA_VERSION) + " " + url + " " + options.process.program;
  for (const std::string& argument : options.process.arguments)
    options.fingerprint += " " + argument;
  if (!proxies.empty()) options.fingerprint += " " + codec::Sha256::of(proxies).hex();
  return options;
}

/// Removes nodes of earlier runs that are no longer declared: first the processes, then the
/// objects.
void end_other_nodes(const Settings& settings, ControlPlane& control_plane) {
  auto names = os::real_file_system().list(settings.data_dir / "nodes");
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    bool wanted = false;
    for (const datadir::NodeSpec& node : settings.nodes) wanted = wanted || node.name == name;
    if (wanted) continue;
    const fs::path data = datadir::node_directory(settings.data_dir, name) / "data";
    datadir::end_processes(datadir::agents_of(data), kAgentGrace);
    if (const auto ended = node::end_containers(data, kContainerGrace); !ended.ok())
      log::warn("containers of a removed node still run",
                {{"node", name}, {"error", ended.error()}});
    if (const Status forgotten = control_plane.forget_node(name); !forgotten.ok()) {
      log::warn("removed node not deleted from the API server",
                {{"node", name}, {"error", forgotten.error()}});
    }
  }
}

Result<std::unique_ptr<os::FileLock>> take_lock(const Context& ctx, const fs::path& data_dir) {
  // A `varda up` that was just killed may still hold its lock: the kernel releases the lock at the
  // end.
  for (int attempt = 0;; ++attempt) {
    auto lock = os::FileLock::acquire(data_dir / "up.lock");
    if (lock.ok() || lock.error().code() != Code::kUnavailable) return lock;
    TRY(const auto state, datadir::read_state(data_dir));
    // Until it is gone, a killed process looks like a running one.
    if (attempt >= (state && os::alive(state->process) ? 10 : 30)) {
      return Error(Code::kUnavailable,
                   "varda up is already running with --data-dir " + data_dir.string() +
                       (state ? " (pid " + std::to_string(state->process.pid) + ", https://" +
                                    state->address + ")"
                              : "") +
                       "; `varda down --data-dir " + data_dir.string() + "` ends it");
    }
    TRY_VOID(ctx.sleep_for(std::chrono::milliseconds(100)));
  }
}

void print_ready(const Settings& settings, const ControlPlane& control_plane,
                 os::Detached* parent) {
  const std::string gateway = control_plane.gateway_address();
  const std::string registry = control_plane.registry_url();
  const std::string line = "varda is ready: " + control_plane.url() +
                           (gateway.empty() ? "" : ", gateway https://" + gateway) +
                           (registry.empty() ? "" : ", registry " + registry) + ", nodes " +
                           names_of(settings.nodes) +
                           "; KUBECONFIG=" + (settings.data_dir / "kubeconfig").string();
  if (parent) {
    parent->ready(line);
  } else {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }
  log::info("ready", {{"url", control_plane.url()}, {"nodes", names_of(settings.nodes)}});
}

/// For the next start: the address, or "off".
std::string registry_address(const ControlPlane& control_plane) {
  const std::string url = control_plane.registry_url();
  return url.empty() ? kOff : url.substr(url.find("://") + 3);
}

Status run_up(const Context& ctx, const Settings& settings, os::Detached* parent) {
  auto& files = os::real_file_system();
  // An agent would retry for ever; here the user sees the cause.
  if (settings.driver == "containerd") {
    TRY([[maybe_unused]] const std::string version,
        node::containerd_version(ctx, settings.containerd_socket).context("--driver containerd"));
  }
  if (settings.driver == "process" && ::geteuid() == 0) {
    log::warn(
        "pods share this machine: the process driver run as root isolates no network, processes, "
        "CPU or memory",
        {{"instead", "--driver containerd, or an ordinary user"}});
  }
  TRY_VOID(files.make_directories(settings.data_dir, 0700).context("--data-dir"));
  TRY(const std::unique_ptr<os::FileLock> lock, take_lock(ctx, settings.data_dir));
  TRY_VOID(datadir::check_first_room(settings.data_dir));
  TRY_VOID(datadir::prepare_data_directory(settings.data_dir));
  for (const datadir::NodeSpec& node : settings.nodes) {
    TRY_VOID(files.make_directories(datadir::node_directory(settings.data_dir, node.name) / "data",
                                    0700));
    TRY_VOID(os::remove_leftovers(files, datadir::node_directory(settings.data_dir, node.name)));
  }

  ControlPlane::Options options;
  options.data_dir = settings.data_dir;
  options.listen = settings.listen;
  options.listen_any_if_taken = settings.listen_elsewhere;
  options.gateway = settings.gateway;
  options.gateway_any_if_taken = settings.gateway_elsewhere;
  if (settings.registry != kOff) options.registry = settings.registry;
  options.registry_any_if_taken = settings.registry_elsewhere;
  options.nodes = settings.nodes;
  options.limits = settings.limits;
  options.audit = settings.audit;
  options.inference_models = settings.inference_models;
  // The nodes are on this machine, so their paths are paths of the operator too.
  const auto& roots = settings.node_limits.file_roots;
  TRY(const auto file_digests,
      FileDigests::create(settings.download, {roots.begin(), roots.end()}));
  options.inference_models.file_digests = file_digests->reader();
  options.inference_models.readable_files = hosting::ReadableFiles::kDownloadsAndPaths;
  for (const NodeAddress& one : settings.addresses) {
    if (one.node.empty()) options.node_port_host = one.address;
  }
  TRY(const std::unique_ptr<ControlPlane> control_plane, ControlPlane::start(std::move(options)));

  const auto self = os::find_process(::getpid());
  const auto directory = [](const DatasetRoot& root) { return root.directory.string(); };
  const auto address = [](const NodeAddress& one) { return one.address; };
  TRY_VOID(datadir::write_state(
      settings.data_dir, {.process = self.value_or(os::ProcessId{}),
                          .address = control_plane->address(),
                          .gateway = control_plane->gateway_address(),
                          .registry = registry_address(*control_plane),
                          .nodes = settings.nodes,
                          .images = settings.images,
                          .driver = settings.driver,
                          .containerd_socket = settings.containerd_socket,
                          .pod_network = settings.pod_network,
                          .dataset_roots = texts_of<DatasetRoot>(settings.dataset_roots, directory),
                          .addresses = texts_of<NodeAddress>(settings.addresses, address)}));
  end_other_nodes(settings, *control_plane);
  std::vector<std::unique_ptr<datadir::Supervisor>> agents;
  for (const datadir::NodeSpec& node : settings.nodes) {
    agents.push_back(
        std::make_unique<datadir::Supervisor>(agent_options(settings, node, *control_plane)));
    agents.back()->start();
  }

  const Status ready = control_plane->wait_for_nodes(ctx.with_timeout(kNodesReady));
  if (ready.ok()) {
    print_ready(settings, *control_plane, parent);
  } else if (!ctx.stopped()) {
    const std::string message = "varda runs at " + control_plane->url() + ", but " +
                                ready.error().message() + "; `varda down --data-dir " +
                                settings.data_dir.string() + "` ends it";
    log::error("not ready", {{"error", ready.error()}});
    if (parent) {
      parent->failed(message);
    } else {
      std::fprintf(stderr, "%s\n", message.c_str());
    }
  }
  const Status ended = control_plane->wait(ctx);

  log::info("stopping");
  std::vector<std::jthread> stopping;
  for (std::size_t i = 0; i < agents.size(); ++i) {
    stopping.emplace_back([&, i] {
      agents[i]->stop(kAgentGrace);
      const auto containers_ended = node::end_containers(
          datadir::node_directory(settings.data_dir, settings.nodes[i].name) / "data",
          kContainerGrace);
      if (!containers_ended.ok())
        log::warn("containers still run",
                  {{"node", settings.nodes[i].name}, {"error", containers_ended.error()}});
    });
  }
  stopping.clear();  // joins
  control_plane->stop();
  log::info("stopped");
  return ended;
}

/// Ends the `varda up` of `data_dir`, also during its start. No other one starts while the returned
/// lock is held.
Result<std::unique_ptr<os::FileLock>> end_control_plane(const Context& ctx,
                                                        const fs::path& data_dir, bool& any) {
  const Context patient = ctx.with_timeout(std::chrono::seconds(60));
  for (;;) {
    auto lock = os::FileLock::acquire(data_dir / "up.lock");
    if (lock.ok() || lock.error().code() != Code::kUnavailable) return lock;
    TRY(const auto state, datadir::read_state(data_dir));
    if (!state || !os::alive(state->process)) {
      // The process has not written its pid yet.
      TRY_VOID(patient.sleep_for(std::chrono::milliseconds(50))
                   .context((data_dir / "up.lock").string() + " is held"));
      continue;
    }
    any = true;
    (void)os::signal_process(state->process, SIGTERM, /*group=*/false);
    if (!os::wait_for_exit(patient, state->process).ok()) {
      TRY_VOID(ctx.check());
      std::fprintf(stderr, "pid %d did not end within 60 s and is killed\n", state->process.pid);
      (void)os::signal_process(state->process, SIGKILL, /*group=*/false);
      (void)os::wait_for_exit(ctx.with_timeout(std::chrono::seconds(10)), state->process);
    }
  }
}

Status run_down(const Context& ctx, const std::string& flag) {
  TRY(const fs::path data_dir, data_dir_of(flag));
  TRY(const std::optional<datadir::UpState> state, datadir::read_state(data_dir));
  if (!state) return no_data_directory(data_dir);
  bool any = false;
  TRY(const std::unique_ptr<os::FileLock> lock, end_control_plane(ctx, data_dir, any));
  // A killed control plane leaves agents and containers.
  auto names = os::real_file_system().list(data_dir / "nodes");
  const std::vector<std::string> left = names.ok() ? *names : std::vector<std::string>();
  Status failures;  // all errors: a failure at one node does not stop the others
  for (const std::string& name : left) {
    const fs::path data = datadir::node_directory(data_dir, name) / "data";
    const std::vector<os::ProcessId> agents = datadir::agents_of(data);
    datadir::end_processes(agents, kAgentGrace);
    const Result<std::size_t> ended = node::end_containers(data, kContainerGrace);
    any = ended.value_or(0) > 0 || !agents.empty() || any;
    if (ended.ok()) continue;
    failures =
        Error(ended.error().code(), (failures.ok() ? "" : failures.error().message() + "\n") +
                                        "node " + name + ": " + ended.error().message());
  }
  if (!failures.ok()) return failures;
  std::printf(any ? "varda is down\n" : "varda was not running\n");
  return {};
}

}  // namespace

void add_up_commands(Program program) {
  Globals& globals = program.globals;
  Run& chosen = program.chosen;

  const auto flags = std::make_shared<UpFlags>();
  CLI::App* up = program.daemon("up", "everything on this machine: API server, operator and nodes");
  up->add_option("--data-dir", flags->data_dir,
                 "directory for all data; default: $XDG_DATA_HOME/varda");
  up->add_option("--listen", flags->listen,
                 "address of the API server; port 0 takes a free one; default: 127.0.0.1:6443, or "
                 "the previous value");
  up->add_option("--gateway", flags->gateway,
                 "address of the gateway for further nodes, as 0.0.0.0:10443; port 0 takes a free "
                 "port, \"off\" disables it; "
                 "default: none, or the previous value");
  up->add_option("--registry", flags->registry,
                 "address of the registry for models and results, over HTTP; port 0 takes a free "
                 "port, \"off\" disables it; default: 127.0.0.1:8092, or the previous value");
  up->add_option(
      "--node", flags->nodes,
      "NAME[=cloud|edge|device], once a node; default: cloud and edge0, or the previous nodes");
  up->add_option(
        "--driver", flags->driver,
        "driver of pods: process (programs of this machine) or containerd (imported images); "
        "default: process, or the previous value")
      ->check(CLI::IsMember({"process", "containerd"}));
  up->add_option("--containerd-socket", flags->containerd_socket,
                 std::string("address of containerd; default: ") + node::kContainerdSocket +
                     ", or that of last time")
      ->group(kContainerGroup);
  up->add_option(
        "--pod-network", flags->pod_network,
        "network of pods without hostNetwork, with containerd: cni (separate networks, as "
        "configured by CNI) or node "
        "(this machine's network, with an address per node); default: cni, or the previous value")
      ->check(CLI::IsMember({"cni", "node"}))
      ->group(kContainerGroup);
  up->add_option("--servers", flags->controllers.servers,
                 "YAML file with the server of each frameworkType; default: DATA-DIR/servers.yaml "
                 "if it exists");
  add_controller_flags(*up, flags->controllers);
  up->add_option("--image", flags->images,
                 "NAME=COMMAND: pods of this image run that command; kept for later starts");
  add_audit_flags(*up, flags->audit);
  add_limit_flags(*up, flags->limits);
  up->add_option("--dataset-root", flags->dataset_roots,
                 "[NODE=]DIR: NODE, or every node, may read datasets below this directory; \"off\" "
                 "disables it; default: none, or "
                 "the previous values");
  up->add_option("--address", flags->addresses,
                 "[NODE=]IP: IPv4 or IPv6 address of this machine where other machines reach "
                 "models; without NODE for models in "
                 "the cloud layer "
                 "and on all other nodes; \"off\" ends it; default: loopback addresses, or those "
                 "of last time");
  add_limit_flags(*up, flags->node_limits);
  add_download_flags(*up, flags->download);
  up->add_flag("--detach,-d", flags->detach, "run in the background once ready");
  const auto parent = std::make_shared<std::optional<os::Detached>>();
  up->callback([&chosen, &globals, &before = program.before, flags, parent] {
    before = [flags, parent]() -> Status {
      if (!flags->detach) return {};
      TRY(const Settings settings, settings_of(*flags));
      TRY_VOID(os::real_file_system()
                   .make_directories(settings.data_dir / "logs", 0700)
                   .context("--data-dir"));
      TRY(os::Detached end, os::detach(settings.data_dir / "logs/varda.log"));
      parent->emplace(std::move(end));
      return {};
    };
    chosen = [&globals, flags, parent](const Context& ctx) -> Status {
      TRY_VOID(set_up_logs(globals, log::Level::kInfo));
      const auto run = [&]() -> Status {
        TRY(const Settings settings, settings_of(*flags));
        return run_up(ctx, settings, *parent ? &**parent : nullptr);
      };
      Status status = run();
      if (!status.ok() && *parent) (*parent)->failed(status.error().message());
      return status;
    };
  });

  CLI::App* down =
      program.parser.add_subcommand("down", "end `varda up` and everything it started");
  down->add_option("--data-dir", flags->data_dir, "data directory of `varda up`");
  down->callback([&chosen, flags] {
    chosen = [flags](const Context& ctx) { return run_down(ctx, flags->data_dir); };
  });
}

}  // namespace varda::app
