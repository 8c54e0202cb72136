#include "agent/internal/core.h"

#include <algorithm>
#include <utility>

#include "api/core/pod.h"

namespace varda::agent {
namespace {

runtime::Informer::Options pod_informer(const Options& options, const Clock& clock, Rng& rng) {
  runtime::Informer::Options informer;
  informer.resource = api::Pod::resource();
  informer.filter.field_selector = "spec.nodeName=" + options.node_name;
  informer.watch_timeout = options.watch_timeout;
  informer.backoff_max = options.link_backoff_max;
  informer.clock = &clock;
  informer.rng = &rng;
  informer.metrics = options.metrics;
  return informer;
}

/// Opens the roots that exist now, so that an unmounted disk does not block the others.
DatasetManager::OpenTree below(const std::vector<os::Path>& roots) {
  return [roots]() {
    std::vector<os::Path> there;
    for (const os::Path& root : roots)
      if (os::open_readable_tree({root}).ok()) there.push_back(root);
    return os::open_readable_tree(there);
  };
}

}  // namespace

Pods::Pods(const Options& options, const kube::Client& api, NodeFacts facts, const Clock& clock,
           Rng& rng)
    : clock_(clock),
      informer_(api, pod_informer(options, clock, rng)),
      events_(
          api,
          {.component = "varda-agent", .host = options.node_name, .clock = &clock, .rng = &rng}),
      host_(api, informer_, events_, {.backoff_max = options.link_backoff_max, .clock = &clock}),
      registration_(api, std::move(facts), options.node_period, clock) {
  informer_.on_change([this](const runtime::Change&) {
    const MutexLock lock(mutex_);
    changed_ = true;
    wakeup_.notify();
  });
  // If there are no pods, only this marks the end of the first list.
  informer_.on_progress(
      [this](const std::string&, runtime::Informer::Progress) { wakeup_.notify(); });
}

std::vector<runtime::Task> Pods::tasks() {
  std::vector<runtime::Task> out;
  out.push_back(registration_.task());
  out.push_back(runtime::informer_task(informer_, clock_));
  out.push_back(events_.task());
  out.push_back(host_.task());
  out.push_back({.name = "pods",
                 .due = [this] { return feed_due(); },
                 .step = [this](const Context&) { feed(); },
                 .wakeup = &wakeup_});
  return out;
}

std::optional<SteadyTime> Pods::feed_due() const {
  if (!informer_.has_synced()) return std::nullopt;
  const MutexLock lock(mutex_);
  return changed_ || !fed_ ? std::optional(SteadyTime::min()) : std::nullopt;
}

void Pods::feed() {
  {
    const MutexLock lock(mutex_);
    changed_ = false;
    fed_ = true;
  }
  std::vector<codec::Json> pods;
  for (const auto& stored : informer_.list()) pods.push_back(stored->json());
  runner_->set_desired(std::move(pods));
  host_.wake();
}

Core::Core(Parts parts, Pods* pods)
    : parts_(std::move(parts)),
      pods_(pods),
      watch_(parts_.watch == nullptr ? os::make_file_watch() : nullptr),
      link_(parts_.api,
            {.node_name = parts_.options.node_name,
             .watch_timeout = parts_.options.watch_timeout,
             .backoff_max = parts_.options.link_backoff_max,
             .clock = &parts_.clock,
             .rng = &parts_.rng,
             .metrics = parts_.options.metrics},
            [this](const api::EdgeNode& node) {
              models_.set_node(node);
              datasets_.set_node(node);
              if (parts_.replicas != nullptr) parts_.replicas->set_node(node);
              if (parts_.workers != nullptr) parts_.workers->set_node(node);
            }),
      models_({.install_threads = parts_.options.install_threads,
               .retry = {.first = parts_.options.retry_first},
               .serving = {.busy = parts_.options.poll_busy, .steady = parts_.options.poll_steady},
               .requests_period = parts_.options.requests_period,
               .progress_period = parts_.options.progress_period,
               .clock = &parts_.clock,
               .client_of_node =
                   parts_.peers == nullptr
                       ? std::function<net::HttpClient*(const std::string&)>()
                       : [this](const std::string& node) { return parts_.peers->client_of(node); },
               .archives = parts_.archives,
               .metrics = parts_.options.metrics},
              parts_.store, parts_.tree, parts_.fs, parts_.http, parts_.state_store, parts_.rng,
              [this](const api::EdgeNodeStatus& status, const std::string& uid) {
                {
                  const MutexLock lock(mutex_);
                  of_models_ = Said{status, uid};
                }
                report();
              }),
      datasets_(
          {.roots = parts_.options.dataset_roots,
           .directory = parts_.options.data_directory / "datasets",
           .times = {.recount = parts_.options.dataset_recount},
           .clock = &parts_.clock,
           .metrics = parts_.options.metrics},
          parts_.fs, parts_.open_tree ? parts_.open_tree : below(parts_.options.dataset_roots),
          parts_.watch != nullptr ? *parts_.watch : *watch_, parts_.state_store,
          [this](std::vector<api::EdgeDatasetReport> datasets, const std::string& uid,
                 std::int64_t generation) {
            {
              const MutexLock lock(mutex_);
              of_datasets_ =
                  Said{{.observed_generation = generation, .datasets = std::move(datasets)}, uid};
            }
            report();
          }) {
  if (parts_.workers != nullptr) {
    parts_.workers->on_change([this](std::vector<api::EdgeWorkerReport> workers,
                                     const std::string& uid, std::int64_t generation) {
      {
        const MutexLock lock(mutex_);
        of_workers_ = Said{{.observed_generation = generation, .workers = std::move(workers)}, uid};
      }
      report();
    });
  }
  if (parts_.replicas == nullptr) return;
  parts_.replicas->on_change([this](std::vector<api::EdgeShareReport> shares,
                                    std::vector<api::EdgeReplicaReport> replicas,
                                    const std::string& uid, std::int64_t generation) {
    {
      const MutexLock lock(mutex_);
      of_replicas_ = Said{{.observed_generation = generation,
                           .shares = std::move(shares),
                           .replicas = std::move(replicas)},
                          uid};
    }
    report();
  });
}

void Core::report() {
  const MutexLock lock(mutex_);  // held over link_.report(), so that reports stay in order
  if (!of_models_ || !of_datasets_ || (parts_.replicas != nullptr && !of_replicas_)) return;
  if (parts_.workers != nullptr && !of_workers_) return;
  api::EdgeNodeStatus status = of_models_->status;
  status.datasets = of_datasets_->status.datasets;
  std::vector<const Said*> others{&*of_datasets_};
  if (of_replicas_) {
    status.shares = of_replicas_->status.shares;
    status.replicas = of_replicas_->status.replicas;
    status.peer_url = parts_.peer_url;
    others.push_back(&*of_replicas_);
  }
  if (of_workers_) {
    status.workers = of_workers_->status.workers;
    others.push_back(&*of_workers_);
  }
  // Report the lowest generation that all components observed; 0 if they observed different
  // objects.
  for (const Said* other : others) {
    status.observed_generation =
        of_models_->uid == other->uid
            ? std::min(status.observed_generation, other->status.observed_generation)
            : 0;
  }
  status.agent_version = VARDA_VERSION;
  status.model_root = parts_.tree.root().string();
  if (parts_.workers != nullptr) {
    status.worker_root = worker_root(parts_.options.data_directory).string();
    if (!parts_.options.worker_socket.empty())
      status.worker_socket_directory = parts_.options.worker_socket.parent_path().string();
  }
  status.address = parts_.address;
  link_.report(std::move(status), of_models_->uid);
}

std::vector<runtime::Task> Core::tasks() {
  models_.load();
  datasets_.load();
  if (parts_.replicas != nullptr) parts_.replicas->load();
  if (parts_.workers != nullptr) parts_.workers->load();
  std::vector<runtime::Task> out = link_.tasks();
  for (runtime::Task& task : models_.tasks()) out.push_back(std::move(task));
  for (runtime::Task& task : datasets_.tasks()) out.push_back(std::move(task));
  if (parts_.replicas != nullptr)
    for (runtime::Task& task : parts_.replicas->tasks()) out.push_back(std::move(task));
  if (parts_.workers != nullptr)
    for (runtime::Task& task : parts_.workers->tasks()) out.push_back(std::move(task));
  if (pods_ != nullptr)
    for (runtime::Task& task : pods_->tasks()) out.push_back(std::move(task));
  if (parts_.peers != nullptr) out.push_back(parts_.peers->task(parts_.clock));
  return out;
}

void Core::run(const Context& ctx) {
  runtime::run_tasks(ctx, tasks(), parts_.clock);
  models_.finish();
  datasets_.finish();
  if (parts_.workers != nullptr) parts_.workers->finish();
  if (pods_ != nullptr) pods_->finish();
}

}  // namespace varda::agent
