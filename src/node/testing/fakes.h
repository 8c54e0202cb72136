// A scripted driver, prober, host and clock.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "node/pod_runner.h"

namespace varda::node::testing {

/// Advances only by advance(). Thread-safe.
class ManualClock final : public Clock {
 public:
  SteadyTime now() const override {
    MutexLock lock(mutex_);
    return SteadyTime(std::chrono::hours(1000)) + passed_;
  }
  WallTime wall() const override {
    MutexLock lock(mutex_);
    return WallTime(std::chrono::hours(24 * 365 * 55)) +
           std::chrono::duration_cast<WallTime::duration>(passed_);
  }
  void advance(Duration by) {
    MutexLock lock(mutex_);
    passed_ += by;
  }

 private:
  mutable Mutex mutex_;
  Duration passed_ GUARDED_BY(mutex_){0};
};

/// Containers that run until a test ends them. One thread.
class FakeDriver final : public Driver {
 public:
  struct Container {
    ContainerConfig config;
    std::optional<ContainerExit> exit;
    std::vector<StopSignal> signals;
  };

  std::string scheme() const override { return "fake"; }
  LogFormat log_format() const override { return logs; }
  bool private_root() const override { return isolates; }
  Status check_image(const std::string& image) const override {
    if (image == "unknown") return Error(Code::kUnsupported, "no such image");
    if (image == "missing") return Error(Code::kNotFound, "import it");
    return {};
  }
  Result<std::string> prepare_pod(const PodConfig& pod) override {
    if (fail_pod) return *fail_pod;
    prepared.push_back(pod);
    left.insert(pod.uid);
    return pod.host_network ? "" : address;
  }
  Status remove_pod(const std::string& uid) override {
    if (fail_removal) return *fail_removal;
    left.erase(uid);
    removed.push_back(uid);
    return {};
  }
  Result<std::vector<std::string>> pods() override {
    return std::vector<std::string>(left.begin(), left.end());
  }
  Result<std::string> start(const ContainerConfig& config) override {
    if (fail_start) return *fail_start;
    const std::string id = config.name.container + "-" + std::to_string(config.name.attempt);
    containers[id] = {.config = config, .exit = std::nullopt, .signals = {}};
    starts.push_back(id);
    return id;
  }
  std::optional<ContainerExit> poll(const std::string& id, const ContainerName&) override {
    const auto found = containers.find(id);
    if (found == containers.end())
      return ContainerExit{.code = 137, .signal = 0, .known = false, .reason = ""};
    return found->second.exit;
  }
  void stop(const std::string& id, const ContainerName&, StopSignal signal) override {
    Container& c = containers[id];
    c.signals.push_back(signal);
    if (!c.exit && (signal == StopSignal::kKill || obeys_terminate)) {
      c.exit = ContainerExit{.code = signal == StopSignal::kKill ? 137 : 143,
                             .signal = signal == StopSignal::kKill ? 9 : 15};
    }
  }
  Result<int> exec(const Context&, const ContainerConfig&,
                   const std::vector<std::string>&) override {
    return 0;
  }
  Result<std::vector<FoundContainer>> find() override {
    if (fail_find) return *fail_find;
    std::vector<FoundContainer> found;
    for (const auto& [id, c] : containers) {
      if (!c.exit) found.push_back({.name = c.config.name, .id = id});
    }
    return found;
  }
  void on_exit(std::function<void()>) override {}

  void end(const std::string& id, int code) {
    containers.at(id).exit = ContainerExit{.code = code};
  }
  std::size_t running() const {
    std::size_t n = 0;
    for (const auto& [id, c] : containers) n += c.exit ? 0 : 1;
    return n;
  }

  std::map<std::string, Container> containers;  // "NAME-ATTEMPT"
  std::vector<std::string> starts;
  std::vector<PodConfig> prepared;
  std::set<std::string> left;        // uids of pods with remains
  std::vector<std::string> removed;  // uids
  std::optional<Error> fail_start, fail_pod, fail_removal, fail_find;
  LogFormat logs = LogFormat::kRaw;
  bool isolates = false;
  std::string address;  // for every pod without the host's network
  bool obeys_terminate = true;
};

/// Answers every probe at once.
class FakeProber final : public Prober {
 public:
  void start(Probe probe, Done done) override {
    probes.push_back(probe);
    done(healthy.contains(probe.path)
             ? Status()
             : Status(Error(Code::kUnavailable, "HTTP probe failed with statuscode: 503")));
  }
  std::vector<Probe> probes;
  std::set<std::string> healthy;  // paths
};

/// Records all calls. Thread-safe.
class RecordingHost final : public Host {
 public:
  void status_changed(const PodName& pod, const Json& status) override {
    MutexLock lock(mutex_);
    statuses_[pod.name] = status;
    ++changes_;
    changed_.notify_all();
  }
  void finished(const PodName& pod) override {
    MutexLock lock(mutex_);
    finished_.insert(pod.name);
    changed_.notify_all();
  }
  void event(const PodName& pod, const std::string& type, const std::string& reason,
             const std::string& message) override {
    MutexLock lock(mutex_);
    events_.push_back(pod.name + " " + type + " " + reason + " " + message);
  }
  Result<Json> config_map(const std::string& ns, const std::string& name) override {
    return object("configmap " + ns + "/" + name);
  }
  Result<Json> secret(const std::string& ns, const std::string& name) override {
    return object("secret " + ns + "/" + name);
  }

  Json status(const std::string& pod) const {
    MutexLock lock(mutex_);
    const auto found = statuses_.find(pod);
    return found == statuses_.end() ? Json() : found->second;
  }
  int changes() const {
    MutexLock lock(mutex_);
    return changes_;
  }
  bool has_finished(const std::string& pod) const {
    MutexLock lock(mutex_);
    return finished_.contains(pod);
  }
  std::vector<std::string> events() const {
    MutexLock lock(mutex_);
    return events_;
  }
  /// "configmap NS/NAME" or "secret NS/NAME"; null: does not exist.
  void set_object(const std::string& key, Json value) {
    MutexLock lock(mutex_);
    objects_[key] = std::move(value);
  }
  void set_offline(bool offline) {
    MutexLock lock(mutex_);
    offline_ = offline;
  }
  /// Waits until `holds` accepts the pod's status, at most 60 s.
  bool wait_for(const std::string& pod,
                const std::function<bool(const Json& status)>& holds) const {
    const SteadyTime end = system_clock().now() + std::chrono::seconds(60);
    MutexLock lock(mutex_);
    for (;;) {
      const auto found = statuses_.find(pod);
      if (found != statuses_.end() && holds(found->second)) return true;
      if (!changed_.wait_until(mutex_, end)) return false;
    }
  }
  bool wait_finished(const std::string& pod) const {
    const SteadyTime end = system_clock().now() + std::chrono::seconds(60);
    MutexLock lock(mutex_);
    while (!finished_.contains(pod)) {
      if (!changed_.wait_until(mutex_, end)) return false;
    }
    return true;
  }

 private:
  Result<Json> object(const std::string& key) const {
    MutexLock lock(mutex_);
    if (offline_) return Error(Code::kUnavailable, "no connection");
    const auto found = objects_.find(key);
    if (found == objects_.end() || found->second.is_null())
      return Error(Code::kNotFound, key + " not found");
    return found->second;
  }

  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::map<std::string, Json> statuses_ GUARDED_BY(mutex_);
  std::set<std::string> finished_ GUARDED_BY(mutex_);
  std::vector<std::string> events_ GUARDED_BY(mutex_);
  std::map<std::string, Json> objects_ GUARDED_BY(mutex_);
  int changes_ GUARDED_BY(mutex_) = 0;
  bool offline_ GUARDED_BY(mutex_) = false;
};

}  // namespace varda::node::testing
