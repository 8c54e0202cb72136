#include "agent/agent.h"

#include <condition_variable>
#include <thread>

#include "agent/address.h"
#include "agent/journal.h"
#include "agent/link.h"
#include "agent/model_keeper.h"
#include "agent/node_registration.h"
#include "agent/pod_host.h"
#include "api/core/pod.h"
#include "base/log.h"
#include "node/end_containers.h"
#include "node/process_driver.h"

namespace varda::agent {
namespace {

Status check(const Options& options) {
  if (const std::string wrong = meta::check_dns_subdomain(options.node_name); !wrong.empty())
    return Error(Code::kInvalid, "node name \"" + options.node_name + "\": " + wrong);
  if (!options.data_directory.is_absolute())
    return Error(Code::kInvalid, "data directory \"" + options.data_directory.string() + "\": must be absolute");
  if (options.layer != "cloud" && options.layer != "edge" && options.layer != "device")
    return Error(Code::kInvalid, "layer \"" + options.layer + "\": must be cloud, edge or device");
  for (const os::Path& root : options.file_roots)
    if (!root.is_absolute()) return Error(Code::kInvalid, "allowed file root \"" + root.string() + "\": must be absolute");
  return {};
}

// The pods of the node: watches them, hands them to the runner, brings back what it says.
class Pods {
 public:
  Pods(const Options& options, const kube::Client& api, std::string address, os::ProcessRunner& processes)
      : options_(options),
        api_(api),
        address_(std::move(address)),
        informer_(api, informer_options(options)),
        events_(api, {.component = "varda-agent", .host = options.node_name}),
        host_(api, informer_, events_, {.backoff_max = options.link_backoff_max}),
        driver_(node::make_process_driver({.root = options.data_directory,
                                           .programs = options.programs,
                                           .images = options.images,
                                           .environment = options.container_environment},
                                          processes)) {
    informer_.on_change([this](const runtime::Change&) {
      const MutexLock lock(mutex_);
      changed_ = true;
      woken_.notify_all();
    });
  }

  Status open(os::FileSystem& fs, Rng& rng) {
    TRY(runner_, node::PodRunner::open({.root = options_.data_directory, .node_name = options_.node_name, .node_address = address_},
                                       *driver_, host_, fs, system_clock(), rng));
    return {};
  }

  void run(const Context& ctx) {
    std::vector<std::jthread> threads;
    threads.emplace_back([this, &ctx] {
      keep_registered(ctx, api_, read_facts(options_.node_name, options_.layer, address_), options_.node_period);
    });
    threads.emplace_back([this, &ctx] { informer_.run(ctx); });
    threads.emplace_back([this, &ctx] { events_.run(ctx); });
    threads.emplace_back([this, &ctx] { host_.run(ctx); });
    threads.emplace_back([this, &ctx] {
      if (Status status = runner_->run(ctx); !status.ok() && !ctx.done())
        log::error("the pod runner ended", {{"error", status.error()}});
    });
    feed(ctx);
    threads.clear();
    if (options_.on_stop == OnStop::kEndContainers) node::end_containers(options_.data_directory, options_.stop_grace);
  }

 private:
  static runtime::Informer::Options informer_options(const Options& options) {
    runtime::Informer::Options informer;
    informer.resource = api::Pod::resource();
    informer.filter.field_selector = "spec.nodeName=" + options.node_name;
    informer.watch_timeout = kWatchTimeout;
    informer.backoff_max = options.link_backoff_max;
    return informer;
  }

  // Only a complete list is a wish: a pod that is missing from it is ended.
  void feed(const Context& ctx) {
    bool fed = false;
    while (!ctx.done()) {
      {
        std::unique_lock<Mutex> lock(mutex_);
        [&]() NO_THREAD_SAFETY_ANALYSIS {
          const Duration patience = fed ? Duration(std::chrono::hours(1)) : Duration(std::chrono::milliseconds(50));
          woken_.wait_until(lock, ctx.stop_token(), system_clock().now() + patience,
                            [&]() NO_THREAD_SAFETY_ANALYSIS { return changed_ && fed; });
          changed_ = false;
        }();
      }
      if (!informer_.has_synced() || ctx.done()) continue;
      std::vector<codec::Json> pods;
      for (const auto& stored : informer_.list()) pods.push_back(stored->json);
      runner_->set_desired(std::move(pods));
      host_.wake();
      fed = true;
    }
  }

  const Options& options_;
  const kube::Client& api_;
  const std::string address_;
  runtime::Informer informer_;
  runtime::ApiEventRecorder events_;
  PodHost host_;
  std::unique_ptr<node::Driver> driver_;
  std::unique_ptr<node::PodRunner> runner_;
  Mutex mutex_;
  std::condition_variable_any woken_;
  bool changed_ GUARDED_BY(mutex_) = false;
};

class EdgeAgent final : public Agent {
 public:
  EdgeAgent(Options options, const kube::Client& api, net::HttpClient& http, os::FileSystem& fs, Rng& rng)
      : options_(std::move(options)), api_(api), http_(http), fs_(fs), rng_(rng) {}

  Status start(os::ProcessRunner& processes) {
    TRY_VOID(fs_.make_directories(options_.data_directory, 0700));
    TRY(journal_, Journal::open(options_.data_directory / "agent.db"));
    TRY(address_, agent::node_address(options_.node_address, *journal_, rng_, fs_));
    TRY(store_, artifact::Store::open({.root = options_.data_directory / "artifacts",
                                       .file_roots = options_.file_roots,
                                       .limits = options_.artifact_limits,
                                       .capacity_bytes = options_.artifact_capacity_bytes},
                                      fs_, http_));
    TRY(auto tree, artifact::ModelTree::open(fs_, options_.data_directory / "models"));
    tree_ = std::make_unique<artifact::ModelTree>(std::move(tree));
    if (options_.runner == Runner::kProcess) {
      pods_ = std::make_unique<Pods>(options_, api_, address_, processes);
      TRY_VOID(pods_->open(fs_, rng_));
    }
    return {};
  }

  const std::string& node_address() const override { return address_; }

  Status run(const Context& given) override {
    // A deadline ends the agent as a stop request does; inside, only the stop token counts.
    std::stop_source stop;
    const std::stop_callback linked(given.stop_token(), [&stop] { stop.request_stop(); });
    const Context ctx(stop.get_token());
    ModelKeeper* keeper = nullptr;
    Link link(api_, {.node_name = options_.node_name, .backoff_max = options_.link_backoff_max},
              [&keeper](const api::EdgeNode& node) { keeper->set_desired(node); });
    ModelKeeper models({.install_threads = options_.install_threads,
                        .retry = {.first = options_.retry_first},
                        .serving = {.busy = options_.poll_busy, .steady = options_.poll_steady},
                        .metrics = options_.metrics},
                       *store_, *tree_, fs_, http_, *journal_, rng_, [this, &link](api::EdgeNodeStatus status) {
                         status.agent_version = VARDA_VERSION;
                         status.model_root = tree_->root().string();
                         status.address = address_;
                         link.report(std::move(status));
                       });
    keeper = &models;
    log::info("agent started", {{"node", options_.node_name}, {"address", address_}, {"data", options_.data_directory.string()}});
    std::vector<std::jthread> threads;
    threads.emplace_back([&] { link.run(ctx); });
    threads.emplace_back([&] { models.run(ctx); });
    if (pods_) threads.emplace_back([&] { pods_->run(ctx); });
    (void)given.sleep_until(SteadyTime::max());  // its end is what we wait for
    stop.request_stop();
    threads.clear();
    log::info("agent stopped", {{"node", options_.node_name}});
    return {};
  }

 private:
  const Options options_;
  const kube::Client& api_;
  net::HttpClient& http_;
  os::FileSystem& fs_;
  Rng& rng_;
  std::unique_ptr<Journal> journal_;
  std::string address_;
  std::unique_ptr<artifact::Store> store_;
  std::unique_ptr<artifact::ModelTree> tree_;
  std::unique_ptr<Pods> pods_;
};

}  // namespace

Result<std::unique_ptr<Agent>> Agent::open(Options options, const kube::Client& api, net::HttpClient& http, os::FileSystem& fs,
                                           Rng& rng, os::ProcessRunner& processes) {
  TRY_VOID(check(options));
  auto agent = std::make_unique<EdgeAgent>(std::move(options), api, http, fs, rng);
  TRY_VOID(agent->start(processes));
  return std::unique_ptr<Agent>(std::move(agent));
}

}  // namespace varda::agent
