#include "node/pod_runner.h"

#include <atomic>
#include <map>
#include <set>

#include "base/log.h"
#include "base/mutex.h"
#include "node/internal/pod_worker.h"
#include "node/log_stream.h"

namespace varda::node {
namespace {

using internal::PodRecord;
using internal::PodWorker;
using internal::ProbeResult;

// Between two checks, only the writer's speed limits a log.
constexpr auto kLogCheck = std::chrono::seconds(1);

// Forwards to the real host, and records that desired() has changed.
class NotingHost final : public Host {
 public:
  explicit NotingHost(Host& host) : host_(host) {}
  void status_changed(const PodName& pod, const Json& status) override {
    changed = true;
    host_.status_changed(pod, status);
  }
  void finished(const PodName& pod) override {
    changed = true;
    host_.finished(pod);
  }
  void event(const PodName& pod, const std::string& type, const std::string& reason,
             const std::string& message) override {
    host_.event(pod, type, reason, message);
  }
  Result<Json> config_map(const std::string& ns, const std::string& name) override {
    return host_.config_map(ns, name);
  }
  Result<Json> secret(const std::string& ns, const std::string& name) override {
    return host_.secret(ns, name);
  }

  bool changed = true;

 private:
  Host& host_;
};

std::string boot_id() {
  const auto text = os::read_file(os::real_file_system(), "/proc/sys/kernel/random/boot_id");
  return text.value_or("");
}

PodRunner::Options absolute(PodRunner::Options options) {
  std::error_code error;
  options.root = std::filesystem::absolute(options.root, error).lexically_normal();
  return options;
}

class Runner final : public PodRunner {
 public:
  Runner(Options options, Driver& driver, Host& host, os::FileSystem& fs, const Clock& clock,
         Rng& rng, Prober* prober)
      : options_(absolute(std::move(options))),
        driver_(driver),
        host_(host),
        own_prober_(prober == nullptr ? make_prober(driver) : nullptr),
        shared_{.options = options_,
                .driver = driver,
                .host = host_,
                .fs = fs,
                .clock = clock,
                .rng = rng,
                .prober = prober == nullptr ? *own_prober_ : *prober,
                .boot = boot_id(),
                .deliver = [this](ProbeResult result) { deliver(std::move(result)); },
                .addresses_in_use = [this] { return addresses(); },
                .port_held = [this](const PodWorker& worker) { return port_held(worker); }} {}

  // Stops all callbacks from other threads before the members that they use are destroyed.
  ~Runner() override {
    driver_.on_exit({});
    own_prober_.reset();
  }

  Status load() {
    driver_.on_exit([this] { wake(); });
    const os::Path pods = options_.root / "pods";
    TRY_VOID(shared_.fs.make_directories(pods, 0750));
    TRY(const std::vector<std::string> directories, shared_.fs.list(pods));
    TRY(const std::vector<FoundContainer> running, driver_.find());
    for (const std::string& directory : directories) {
      TRY_VOID(os::remove_leftovers(shared_.fs, pods / directory));
      Result<PodRecord> record = read(pods / directory);
      if (!record.ok()) {
        // Without a record the pod is unknown. If it is still desired, it is created again.
        log::warn("removing a pod directory without a usable record",
                  {{"directory", directory}, {"error", record.error()}});
        const Status removed = shared_.fs.remove_all(pods / directory);
        if (!removed.ok()) log::warn("pod directory not removed", {{"error", removed.error()}});
        continue;
      }
      const std::string uid = record->name().uid;
      auto worker = std::make_unique<PodWorker>(shared_, std::move(record).value());
      worker->adopt(running);
      workers_.emplace(uid, std::move(worker));
    }
    end_strays(running);
    TRY_VOID(remove_strays());
    count_ = workers_.size();
    snapshot();
    return {};
  }

  void set_desired(std::vector<Json> pods) override {
    MutexLock lock(mutex_);
    pending_ = std::move(pods);
    notify();
  }

  Status run(const Context& ctx) override {
    const std::stop_callback stop(ctx.stop_token(), [this] { wake(); });
    while (!ctx.done()) {
      std::optional<SteadyTime> next = step();
      if (ctx.deadline() && (!next || *ctx.deadline() < *next)) next = ctx.deadline();
      MutexLock lock(mutex_);
      while (!woken_ && !ctx.done()) {
        if (!next) {
          changed_.wait(mutex_);
        } else if (!changed_.wait_until(mutex_, *next)) {
          break;
        }
      }
    }
    return {};
  }

  std::optional<SteadyTime> step() override {
    std::optional<std::vector<Json>> desired;
    std::vector<ProbeResult> results;
    {
      MutexLock lock(mutex_);
      woken_ = false;
      desired.swap(pending_);
      results.swap(inbox_);
    }
    if (desired) accept(std::move(*desired));
    for (const ProbeResult& result : results) {
      const auto found = workers_.find(result.name.pod_uid);
      if (found != workers_.end()) found->second->on_probe(result);
    }
    std::optional<SteadyTime> next;
    const auto due = [&](std::optional<SteadyTime> when) {
      if (when && (!next || *when < *next)) next = when;
    };
    // Stopping pods come first, because others may wait for their resources.
    for (const bool leaving : {true, false}) {
      for (auto it = workers_.begin(); it != workers_.end();) {
        if (it->second->leaving() == leaving) due(it->second->step());
        it = it->second->done() ? workers_.erase(it) : std::next(it);
      }
    }
    due(rotate_logs());
    count_ = workers_.size();
    if (host_.changed) snapshot();
    return next;
  }

  std::vector<Json> desired() const override {
    MutexLock lock(mutex_);
    return snapshot_;
  }
  bool idle() const override { return count_ == 0; }

 private:
  Result<PodRecord> read(const os::Path& directory) const {
    TRY(const std::string text, os::read_file(shared_.fs, directory / "record.json"));
    TRY(const Json json, codec::parse_json(text));
    return PodRecord::from_json(json);
  }

  void end_strays(const std::vector<FoundContainer>& running) {
    for (const FoundContainer& found : running) {
      if (found.ended) continue;
      const auto worker = workers_.find(found.name.pod_uid);
      const bool known = worker != workers_.end() && runs(worker->second->record(), found);
      if (known) continue;
      log::warn("killing a container that belongs to no pod",
                {{"container", found.name.container}, {"id", found.id}});
      driver_.stop(found.id, found.name, StopSignal::kKill);
    }
  }

  // Pods without a record: the runner was killed before the first one was written, or the directory
  // was lost. A pod that is still desired is created again.
  Status remove_strays() {
    TRY(const std::vector<std::string> pods, driver_.pods());
    for (const std::string& uid : pods) {
      if (workers_.contains(uid)) continue;
      log::warn("removing the remains of an unknown pod", {{"uid", uid}});
      if (const Status removed = driver_.remove_pod(uid); !removed.ok())
        log::warn("pod not removed", {{"error", removed.error()}});
    }
    return {};
  }

  static bool runs(const PodRecord& record, const FoundContainer& found) {
    for (const auto* list : {&record.init, &record.main}) {
      for (const internal::ContainerRecord& c : *list) {
        if (c.running() && c.id == found.id) return true;
      }
    }
    return false;
  }

  void accept(std::vector<Json> pods) {
    std::set<std::string> wanted;
    for (Json& pod : pods) {
      const std::string uid = pod.at("metadata/uid").as_string();
      if (uid.empty()) continue;
      wanted.insert(uid);
      if (const auto known = workers_.find(uid); known != workers_.end()) {
        known->second->update(std::move(pod));
        continue;
      }
      // The pod has completed, here or before this runner's records were lost, so it does not run
      // again.
      const std::string phase = pod.at("status/phase").as_string();
      if ((phase == "Succeeded" || phase == "Failed") &&
          pod.at("metadata/deletionTimestamp").is_null())
        continue;
      PodRecord record = PodRecord::of(PodWorker::strip(std::move(pod)));
      if (workers_.size() >= options_.pods_max) {
        host_.event(record.name(), "Warning", "OutOfpods",
                    "Node didn't have enough capacity: at most " +
                        std::to_string(options_.pods_max) + " pods");
        continue;
      }
      workers_.emplace(uid, std::make_unique<PodWorker>(shared_, std::move(record)));
    }
    for (auto& [uid, worker] : workers_) {
      if (!wanted.contains(uid)) worker->remove();
    }
    host_.changed = true;
  }

  std::set<std::string> addresses() const {
    std::set<std::string> taken = {options_.node_address};
    for (const auto& [uid, worker] : workers_) taken.insert(worker->record().ip);
    return taken;
  }

  std::string port_held(const PodWorker& waiting) const {
    const std::set<std::string> wanted = waiting.record().host_ports();
    if (wanted.empty()) return "";
    for (const auto& [uid, worker] : workers_) {
      if (worker.get() == &waiting || !worker->leaving() || !worker->anything_runs()) continue;
      for (const std::string& port : worker->record().host_ports()) {
        if (wanted.contains(port))
          return "pod " + internal::text(worker->name()) + " is ending and still has port " + port;
      }
    }
    return "";
  }

  std::optional<SteadyTime> rotate_logs() {
    const SteadyTime now = shared_.clock.now();
    const bool look = now >= rotate_at_;
    bool any = false;
    for (const auto& [uid, worker] : workers_) {
      for (const auto* list : {&worker->record().init, &worker->record().main}) {
        for (const internal::ContainerRecord& c : *list) {
          any = any || c.running();
          // Includes exited containers, which may have written until their exit.
          if (!look || (!c.running() && !rotate_once_more_)) continue;
          const Status rotated =
              rotate_log(worker->directory() / (c.name + ".log"), options_.log_bytes_max);
          if (!rotated.ok())
            log::warn("cannot rotate a container log",
                      {{"pod", internal::text(worker->name())}, {"error", rotated.error()}});
        }
      }
    }
    if (look) {
      rotate_at_ = now + kLogCheck;
      rotate_once_more_ = any;
    }
    return any || rotate_once_more_ ? std::optional(rotate_at_) : std::nullopt;
  }

  void snapshot() {
    std::vector<Json> pods;
    for (const auto& [uid, worker] : workers_) {
      Json pod = worker->record().pod;
      pod.set("status", worker->record().status);
      pods.push_back(std::move(pod));
    }
    host_.changed = false;
    MutexLock lock(mutex_);
    snapshot_ = std::move(pods);
  }

  // At most one result waits for each probe of each container.
  void deliver(ProbeResult result) {
    MutexLock lock(mutex_);
    inbox_.push_back(std::move(result));
    notify();
  }
  void wake() {
    MutexLock lock(mutex_);
    notify();
  }
  void notify() REQUIRES(mutex_) {
    woken_ = true;
    changed_.notify_all();
  }

  const Options options_;
  Driver& driver_;
  NotingHost host_;
  std::map<std::string, std::unique_ptr<PodWorker>>
      workers_;  // by uid; used by the thread in step()
  SteadyTime rotate_at_{};
  bool rotate_once_more_ = false;  // something ran at the last check
  std::atomic<std::size_t> count_{0};

  mutable Mutex mutex_;
  CondVar changed_;
  bool woken_ GUARDED_BY(mutex_) = false;
  std::optional<std::vector<Json>> pending_ GUARDED_BY(mutex_);  // the last set
  std::vector<ProbeResult> inbox_ GUARDED_BY(mutex_);
  std::vector<Json> snapshot_ GUARDED_BY(mutex_);

  std::unique_ptr<Prober> own_prober_;  // destroyed before the members that its callbacks use
  const internal::Shared shared_;
};

}  // namespace

Result<std::unique_ptr<PodRunner>> PodRunner::open(Options options, Driver& driver, Host& host,
                                                   os::FileSystem& fs, const Clock& clock, Rng& rng,
                                                   Prober* prober) {
  auto runner = std::make_unique<Runner>(std::move(options), driver, host, fs, clock, rng, prober);
  TRY_VOID(runner->load().context("open the pod runner"));
  return std::unique_ptr<PodRunner>(std::move(runner));
}

}  // namespace varda::node
