#include "agent/agent.h"

#include <algorithm>
#include <thread>
#include <unistd.h>

#include "agent/core/address.h"
#include "agent/core/core.h"
#include "agent/core/registry_client.h"
#include "agent/core/state_store.h"
#include "agent/datasets/manager.h"
#include "agent/files/manager.h"
#include "agent/models/manager.h"
#include "agent/models/secret_credentials.h"
#include "agent/pods/pods.h"
#include "agent/replicas/manager.h"
#include "agent/replicas/peers.h"
#include "agent/samples/manager.h"
#include "agent/workers/api.h"
#include "agent/workers/artifact_sender.h"
#include "agent/workers/artifact_store.h"
#include "agent/workers/manager.h"
#include "agent/workers/ports.h"
#include "agent/workers/streams.h"
#include "base/log.h"
#include "base/mutex.h"
#include "node/end_containers.h"
#include "node/process_driver.h"

namespace varda::agent {
namespace {

Status check(const Options& options) {
  if (const std::string wrong = meta::check_dns_subdomain(options.node_name); !wrong.empty())
    return Error(Code::kInvalid, "node name \"" + options.node_name + "\": " + wrong);
  if (!options.data_directory.is_absolute())
    return Error(Code::kInvalid,
                 "data directory \"" + options.data_directory.string() + "\": must be absolute");
  if (options.layer != "cloud" && options.layer != "edge" && options.layer != "device")
    return Error(Code::kInvalid, "layer \"" + options.layer + "\": must be cloud, edge or device");
  for (const os::Path& root : options.file_roots)
    if (!root.is_absolute())
      return Error(Code::kInvalid, "allowed file root \"" + root.string() + "\": must be absolute");
  for (const os::Path& root : options.dataset_roots)
    if (!root.is_absolute())
      return Error(Code::kInvalid, "dataset root \"" + root.string() + "\": must be absolute");
  return {};
}

/// Opens those of the directories that exist now, so that an unmounted disk does not block the
/// others.
std::function<Result<std::unique_ptr<os::ReadableTree>>()> tree_below(std::vector<os::Path> roots) {
  return [roots = std::move(roots)] {
    std::vector<os::Path> openable;
    for (const os::Path& root : roots)
      if (os::open_readable_tree({root}).ok()) openable.push_back(root);
    return os::open_readable_tree(openable);
  };
}

/// For EdgeNode.status, which has at most 16.
std::vector<std::string> reported_roots(const std::vector<os::Path>& roots) {
  std::vector<std::string> out;
  for (const os::Path& root : roots)
    if (out.size() < 16) out.push_back(root.lexically_normal().string());
  return out;
}

constexpr std::chrono::milliseconds kTokenPeriod{100};

class AgentImpl final : public Agent {
 public:
  AgentImpl(Options options, const kube::Client& api, net::HttpClient& http, os::FileSystem& fs,
            Rng& rng)
      : options_(std::move(options)),
        api_(api),
        http_(http),
        fs_(fs),
        rng_(rng),
        credentials_(api),
        registry_(api) {}

  Status start(os::ProcessRunner& processes) {
    TRY_VOID(fs_.make_directories(options_.data_directory, 0700));
    TRY(state_store_, core::StateStore::open(options_.data_directory / "agent.db"));
    TRY(address_, core::node_address(options_.node_address, *state_store_, rng_, fs_));
    TRY_VOID(open_artifacts());
    if (options_.peer_credentials) TRY_VOID(start_peers());
    make_components();
    core_->load();  // so that the first requests find their workers
    TRY_VOID(start_worker_api());
    if (options_.runner != Runner::kNone) TRY_VOID(start_runner(processes));
    return {};
  }

  const std::string& node_address() const override { return address_; }
  std::string reported_address() const {
    const bool withheld = options_.reporter == meta::Reporter::kAnotherMachine &&
                          meta::address_scope(address_) == meta::AddressScope::kLoopback;
    return withheld ? "" : address_;
  }

  Status run(const Context& outer) override {
    // A deadline stops the agent like a stop request. Internally only the stop token matters.
    std::stop_source stop;
    const std::stop_callback linked(outer.stop_token(), [&stop] { stop.request_stop(); });
    const std::stop_callback reached(end_.get_token(), [&stop] { stop.request_stop(); });
    const Context ctx(stop.get_token());
    log::info("agent started", {{"node", options_.node_name},
                                {"address", address_},
                                {"data", options_.data_directory.string()}});
    std::vector<std::jthread> threads;
    threads.emplace_back([this, &ctx] { run_tasks(ctx); });
    if (runner_) {
      threads.emplace_back([this, &ctx] {
        if (Status status = runner_->run(ctx); !status.ok() && !ctx.done())
          log::error("pod runner failed, pods are not managed", {{"error", status.error()}});
      });
    }
    // Blocks until the stop request, the deadline, or the end by Options::until.
    (void)outer.with_stop(stop.get_token()).sleep_until(SteadyTime::max());
    stop.request_stop();
    threads.clear();
    streams_->stop();
    worker_ports_.reset();  // all requests are answered by now
    if (runner_ && options_.on_stop == OnStop::kEndContainers) {
      const auto ended = node::end_containers(options_.data_directory, options_.stop_grace);
      if (!ended.ok())
        log::warn("containers keep running",
                  {{"node", options_.node_name}, {"error", ended.error()}});
    }
    log::info("agent stopped", {{"node", options_.node_name}});
    return {};
  }

 private:
  /// For Options::until: the server has this EdgeNode and this report.
  void synced(const api::EdgeNode* live, const api::EdgeNodeStatus& written) {
    const bool answered =
        live != nullptr && written.observed_generation == live->metadata.generation;
    if (options_.until == Until::kUnassigned) {
      if (live == nullptr || (answered && live->spec.workers.empty())) end_.request_stop();
      return;
    }
    if (!answered || live->spec.workers.empty()) return;
    for (const api::EdgeModel& model : live->spec.models) {
      const api::EdgeModelReport* report = written.find_model(model.key);
      if (report == nullptr || report->exposed != model.target) return;
      for (const api::EdgeModelVersion& version : model.versions) {
        const api::EdgeVersionReport* present = report->find_version(version.version);
        if (version.version == model.target &&
            (present == nullptr || present->state != api::EdgeVersionReport::kReady ||
             present->sha256 != version.sha256))
          return;
      }
    }
    std::vector<os::Path> tokens;
    for (const api::EdgeWorker& worker : live->spec.workers)
      tokens.push_back(options_.data_directory / "workers" / worker.key / "token");
    const MutexLock lock(tokens_mutex_);
    tokens_ = std::move(tokens);
    tokens_wakeup_.notify();
  }

  /// Ends the agent once the workers' tokens are on the disk. Tokens follow a list without a
  /// report.
  runtime::Task tokens_task() {
    return {.name = "tokens",
            .due =
                [this] {
                  const MutexLock lock(tokens_mutex_);
                  return tokens_.empty() ? std::nullopt : std::optional(tokens_due_);
                },
            .step =
                [this](const Context&) {
                  const MutexLock lock(tokens_mutex_);
                  const bool all =
                      std::all_of(tokens_.begin(), tokens_.end(), [this](const os::Path& file) {
                        const auto info = fs_.stat(file);
                        return info.ok() && *info;
                      });
                  if (all) end_.request_stop();
                  tokens_due_ = all ? SteadyTime::max() : system_clock().now() + kTokenPeriod;
                },
            .wakeup = &tokens_wakeup_};
  }

  void run_tasks(const Context& ctx) {
    std::vector<runtime::Task> tasks = core_->tasks();
    if (options_.until == Until::kInstalled) tasks.push_back(tokens_task());
    for (runtime::Task& task : sender_->tasks()) tasks.push_back(std::move(task));
    if (pods_)
      for (runtime::Task& task : pods_->tasks()) tasks.push_back(std::move(task));
    if (peers_) tasks.push_back(peers_->task(system_clock(), [this] { replicas_->url_changed(); }));
    runtime::run_tasks(ctx, tasks);
    if (pods_) pods_->finish();
    core_->finish();
  }

  Status open_artifacts() {
    // Archives that this node copied as replicas may be installed, too.
    std::vector<os::Path> file_roots = options_.file_roots;
    if (options_.peer_credentials) file_roots.push_back(options_.data_directory / "replicas");
    TRY(store_,
        artifact::Store::open({.root = options_.data_directory / "artifacts",
                               .file_roots = std::move(file_roots),
                               .limits = options_.artifact_limits,
                               .capacity_bytes = options_.artifact_capacity_bytes,
                               .transport = {.credentials = &credentials_,
                                             .trusting = options_.trusting_client,
                                             .rng = &rng_}},
                              fs_, options_.downloads != nullptr ? *options_.downloads : http_));
    TRY(auto tree, artifact::ModelTree::open(fs_, options_.data_directory / "models"));
    tree_ = std::make_unique<artifact::ModelTree>(std::move(tree));
    return {};
  }

  Status start_peers() {
    const os::Path copies = options_.data_directory / "replicas";
    TRY_VOID(fs_.make_directories(copies, 0700));
    // The tree covers copies too, because a copy may be shared further. The work list decides which
    // files are shared.
    std::vector<os::Path> roots = options_.dataset_roots;
    roots.insert(roots.begin(), copies);
    const auto tree = tree_below(std::move(roots));
    shares_ = std::make_unique<replica::Shares>(tree);
    peers_ = std::make_unique<replicas::Peers>(peer_options());
    TRY(replicas_, replicas::Manager::open(
                       {.roots = options_.dataset_roots,
                        .copies = copies,
                        .records = options_.data_directory / "shares",
                        .copy_bytes_max = options_.replica_bytes_max,
                        .url = [this] { return peers_->url(); },
                        .registry = &registry_},
                       fs_, tree, *shares_,
                       [this](const std::string& node) { return peers_->client_of(node); }, rng_));
    archives_ = std::make_unique<replica::Archives>(
        [this](const codec::Sha256& digest) { return archive(digest); });
    TRY_VOID(peers_->serve([files = shares_->handler(), archives = archives_->handler()](
                               net::Request request, net::Responder respond) {
      const auto& answer = request.path() == replica::kArchivePath ? archives : files;
      answer(std::move(request), std::move(respond));
    }));
    if (!peers_->url().empty())
      log::info("sharing files with other nodes", {{"url", peers_->url()}});
    return {};
  }

  replicas::Peers::Options peer_options() const {
    using Port = replicas::Peers::Port;
    replicas::Peers::Options out{.listen = options_.peer_listen,
                                 .port = Port::kRequired,
                                 .url = options_.peer_url,
                                 .credentials = options_.peer_credentials};
    if (options_.peer_listen == "off") out.listen.clear();
    const std::string address = reported_address();
    // Other machines cannot reach an address that the node withholds.
    if (!options_.peer_listen.empty() || address.empty()) return out;
    const bool v6 = address.find(':') != std::string::npos;
    out.listen = (v6 ? "[" + address + "]" : address) + ":" + std::to_string(replicas::kPeerPort);
    out.port = Port::kOptional;
    return out;
  }

  void make_components() {
    models_ = std::make_unique<models::Manager>(
        models::Manager::Options{
            .install_threads = options_.install_threads,
            .retry = {.first = options_.retry_first},
            .serving = {.busy = options_.poll_busy, .steady = options_.poll_steady},
            .requests_period = options_.requests_period,
            .progress_period = options_.progress_period,
            .client_of_node =
                [this](const std::string& node) {
                  return peers_ ? peers_->client_of(node) : nullptr;
                },
            .file_roots = reported_roots(options_.file_roots),
            .archives = archives_.get(),
            .sample_root = options_.data_directory / "samples",
            .metrics = options_.metrics},
        *store_, *tree_, fs_, http_, *state_store_, rng_);
    datasets_ = std::make_unique<datasets::Manager>(
        datasets::Manager::Options{.roots = options_.dataset_roots,
                                   .reported_roots = reported_roots(options_.dataset_roots),
                                   .directory = options_.data_directory / "datasets",
                                   .times = {.recount = options_.dataset_recount},
                                   .metrics = options_.metrics},
        fs_, tree_below(options_.dataset_roots), *watch_);
    const auto boot = os::read_file(os::real_file_system(), "/proc/sys/kernel/random/boot_id");
    artifacts_ = std::make_unique<workers::ArtifactStore>(
        workers::ArtifactStore::Options{.root = options_.data_directory / "uploads",
                                        .boot = boot.value_or(""),
                                        .changed = [this] { workers_->artifacts_changed(); }},
        fs_, *state_store_);
    // Without the directory, workers get 503 for files, and everything else works. The sender's
    // task tries again.
    if (const Status loaded = artifacts_->load(); !loaded.ok())
      log::error("workers cannot upload files", {{"error", loaded.error()}});
    sender_ = std::make_unique<workers::ArtifactSender>(
        workers::ArtifactSender::Options{
            .metrics = options_.metrics,
            .buckets = {.http = options_.downloads != nullptr ? options_.downloads : &http_,
                        .credentials = &credentials_,
                        .trusting = options_.trusting_client}},
        *artifacts_, fs_, api_);
    streams_ = std::make_unique<workers::Streams>(
        workers::Streams::Options{.node_name = options_.node_name,
                                  .gateway = options_.gateway,
                                  .gateway_url = options_.gateway_url,
                                  .listen_host = stream_host()},
        *state_store_);
    workers_ = std::make_unique<workers::Manager>(
        workers::Manager::Options{.directory = options_.data_directory / "workers",
                                  .socket_directory = options_.worker_socket.parent_path().string(),
                                  .user = static_cast<std::int64_t>(::geteuid()),
                                  .artifacts = artifacts_.get(),
                                  .streams = streams_.get()},
        fs_, *state_store_, rng_);
    files_ = std::make_unique<files::Manager>(
        files::Manager::Options{.roots = options_.file_roots, .limits = options_.artifact_limits},
        fs_, http_);
    samples_ = std::make_unique<samples::Manager>(
        samples::Manager::Options{.root = options_.data_directory / "samples",
                                  .metrics = options_.metrics},
        fs_, tree_below(options_.dataset_roots), http_, *state_store_, rng_);
    std::vector<core::NodeComponent*> components{models_.get(), datasets_.get(), workers_.get(),
                                                 files_.get(), samples_.get()};
    if (replicas_) components.push_back(replicas_.get());
    std::function<void(const api::EdgeNode*, const api::EdgeNodeStatus&)> synced;
    if (options_.until != Until::kStopped) {
      synced = [this](const api::EdgeNode* live, const api::EdgeNodeStatus& written) {
        this->synced(live, written);
      };
    }
    core_ = std::make_unique<core::Core>(
        api_,
        core::Core::Options{.link = {.node_name = options_.node_name,
                                     .watch_timeout = options_.watch_timeout,
                                     .backoff_max = options_.link_backoff_max,
                                     .rng = &rng_,
                                     .metrics = options_.metrics,
                                     .synced = std::move(synced)},
                            .address = reported_address()},
        *state_store_, std::move(components));
  }

  /// The host of the streams' ports: that of the worker port, which pods reach. Never all addresses
  /// of the machine, because the ports ask for no token.
  std::string stream_host() const {
    const std::string& listen = options_.worker_listen;
    const std::string host = listen.substr(0, std::min(listen.rfind(':'), listen.size()));
    if (host.empty()) return "127.0.0.1";
    if (host != "0.0.0.0" && host != "[::]" && host != "::") return host;
    return address_.find(':') == std::string::npos ? address_ : "[" + address_ + "]";
  }

  Status start_worker_api() {
    worker_api_ =
        std::make_unique<workers::Api>(workers::Api::Options{.node_name = options_.node_name,
                                                             .artifacts = artifacts_.get(),
                                                             .streams = streams_.get(),
                                                             .metrics = options_.metrics},
                                       *workers_);
    TRY(worker_ports_,
        workers::Ports::open(
            {.socket = options_.worker_socket,
             .listen = options_.worker_listen,
             .url_file = options_.data_directory / "worker/worker.url",
             .receive = [this](const net::Request& head) { return worker_api_->receive(head); }},
            worker_api_->handler(), fs_));
    if (!worker_ports_->url().empty())
      log::info("worker API listens on a TCP port", {{"url", worker_ports_->url()}});
    return {};
  }

  Status start_runner(os::ProcessRunner& processes) {
    pods_ = std::make_unique<pods::Pods>(
        pods::Pods::Options{
            .facts = pods::read_facts(options_.node_name, options_.layer, reported_address()),
            .watch_timeout = options_.watch_timeout,
            .backoff_max = options_.link_backoff_max,
            .node_period = options_.node_period,
            .metrics = options_.metrics},
        api_, system_clock(), rng_);
    TRY(driver_, make_driver(processes));
    node::end_containers_of_others(options_.data_directory, driver_->scheme(), options_.stop_grace);
    TRY(runner_, node::PodRunner::open({.root = options_.data_directory,
                                        .node_name = options_.node_name,
                                        .node_address = address_,
                                        .host_ip = reported_address()},
                                       *driver_, pods_->host(), fs_, system_clock(), rng_));
    pods_->start(*runner_);
    return {};
  }

  Result<std::unique_ptr<node::Driver>> make_driver(os::ProcessRunner& processes) const {
    if (options_.runner == Runner::kContainerd) {
      node::ContainerdDriverOptions containerd{.root = options_.data_directory,
                                               .pod_network = options_.pod_network};
      if (!options_.containerd_socket.empty()) containerd.socket = options_.containerd_socket;
      return node::make_containerd_driver(Context::background(), std::move(containerd));
    }
    return node::make_process_driver({.root = options_.data_directory,
                                      .programs = options_.programs,
                                      .images = options_.images,
                                      .environment = options_.container_environment,
                                      .hidden = options_.hidden_from_pods},
                                     processes);
  }

  std::optional<replica::Archives::Content> archive(const codec::Sha256& digest) {
    static_assert(replica::kBytesDoneHeader == artifact::kBytesDoneHeader);
    auto found = store_->archive(digest);
    if (!found) return std::nullopt;
    return replica::Archives::Content{
        .file = std::move(found->file), .bytes = found->bytes, .total = found->total};
  }

  const Options options_;
  const kube::Client& api_;
  net::HttpClient& http_;
  os::FileSystem& fs_;
  Rng& rng_;
  models::SecretCredentials credentials_;
  core::RegistryClient registry_;
  const std::unique_ptr<os::FileWatch> watch_ = os::make_file_watch();
  std::unique_ptr<core::StateStore> state_store_;
  std::string address_;
  std::unique_ptr<artifact::Store> store_;
  std::unique_ptr<artifact::ModelTree> tree_;
  std::unique_ptr<replica::Shares> shares_;  // outlives the handlers that use it
  std::unique_ptr<replica::Archives> archives_;
  std::unique_ptr<replicas::Peers> peers_;  // null: the node neither shares nor copies files
  std::unique_ptr<models::Manager> models_;
  std::unique_ptr<datasets::Manager> datasets_;
  std::unique_ptr<files::Manager> files_;
  std::unique_ptr<samples::Manager> samples_;
  std::unique_ptr<replicas::Manager> replicas_;        // null: like peers_
  std::unique_ptr<workers::ArtifactStore> artifacts_;  // notifies workers_
  std::unique_ptr<workers::Streams> streams_;
  std::unique_ptr<workers::ArtifactSender> sender_;
  std::unique_ptr<workers::Manager> workers_;
  std::unique_ptr<core::Core> core_;  // destroyed before its components
  std::unique_ptr<workers::Api> worker_api_;
  std::unique_ptr<workers::Ports> worker_ports_;  // destroyed before the API that it serves
  std::unique_ptr<pods::Pods> pods_;              // null: the agent has no runner
  std::unique_ptr<node::Driver> driver_;
  std::unique_ptr<node::PodRunner> runner_;
  std::stop_source end_;  // requested: Options::until is reached
  Mutex tokens_mutex_;
  std::vector<os::Path> tokens_ GUARDED_BY(tokens_mutex_);  // files that the workers need
  SteadyTime tokens_due_ GUARDED_BY(tokens_mutex_) = SteadyTime::min();
  runtime::Wakeup tokens_wakeup_;
};

}  // namespace

Result<std::unique_ptr<Agent>> Agent::open(Options options, const kube::Client& api,
                                           net::HttpClient& http, os::FileSystem& fs, Rng& rng,
                                           os::ProcessRunner& processes) {
  TRY_VOID(check(options));
  auto agent = std::make_unique<AgentImpl>(std::move(options), api, http, fs, rng);
  TRY_VOID(agent->start(processes));
  return std::unique_ptr<Agent>(std::move(agent));
}

}  // namespace varda::agent
