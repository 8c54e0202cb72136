// The state machine of one pod: step() does what is due. One thread drives it; the time comes from
// a Clock.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "node/internal/environment.h"
#include "node/internal/record.h"
#include "node/pod_runner.h"

namespace varda::node::internal {

enum class ProbeKind { kStartup, kLiveness, kReadiness, kPreStop };

/// The answer to a probe, for the container run it was meant for.
struct ProbeResult {
  ContainerName name;
  ProbeKind kind = ProbeKind::kReadiness;
  Status status;
};

class PodWorker;

/// State that all workers of a runner share.
struct Shared {
  const PodRunner::Options& options;
  Driver& driver;
  Host& host;
  os::FileSystem& fs;
  const Clock& clock;
  Rng& rng;
  Prober& prober;
  std::string boot;                          // boot id of this machine, from the kernel
  std::function<void(ProbeResult)> deliver;  // thread-safe
  std::function<std::set<std::string>()> addresses_in_use;  // of the other pods
  /// The reason why a pod cannot start yet: a stopping pod still has one of its ports. "": it can
  /// start.
  std::function<std::string(const PodWorker&)> port_held;
};

class PodWorker {
 public:
  PodWorker(const Shared& shared, PodRecord record);
  PodWorker(const PodWorker&) = delete;

  /// Removes the members that change with each of our reports.
  static Json strip(Json pod);

  /// Call after a restart: running containers of the record are adopted, the others have ended
  /// unobserved.
  void adopt(const std::vector<FoundContainer>& running);
  /// Updates the desired pod. Its containers stay as first seen.
  void update(Json pod);
  /// The pod is no longer desired.
  void remove();
  void on_probe(const ProbeResult& result);
  /// Whether the pod is being stopped.
  bool leaving() const { return removed_ || record_.deleting(); }
  bool anything_runs() const;
  /// Does what is due; returns the next due time without outside events.
  std::optional<SteadyTime> step();
  /// Whether it has ended and nothing of it is left.
  bool done() const { return done_; }

  PodName name() const { return record_.name(); }
  const PodRecord& record() const { return record_; }
  os::Path directory() const { return directory_; }

 private:
  struct ProbeState {
    const Json* spec = nullptr;  // in record_.pod; null: no such probe
    int successes = 0, failures = 0;
    SteadyTime due{};
    bool in_flight = false;
  };
  // State of a container run that is not persisted.
  struct Live {
    const Json* spec = nullptr;
    bool init = false;
    Duration backoff{0};      // delay of the start after the next exit
    Duration waits{0};        // delay of the next start
    SteadyTime not_before{};  // time of the next start
    SteadyTime running_since{};
    bool ending = false;                // SIGTERM was sent, or a preStop hook runs
    std::optional<SteadyTime> kill_at;  // then SIGKILL, repeatedly
    ContainerConfig config;             // of the current run
    bool has_config = false;
    ProbeState startup, liveness, readiness;
  };

  void bind_specs();
  ContainerRecord& container(std::size_t i) {
    return i < record_.init.size() ? record_.init[i] : record_.main[i - record_.init.size()];
  }
  std::size_t container_count() const { return record_.init.size() + record_.main.size(); }
  ContainerName run_name(const ContainerRecord& c) const {
    return {.pod_uid = uid_, .container = c.name, .attempt = c.attempt};
  }

  void collect_exits();
  void on_exit(std::size_t i, const ContainerExit& exit);
  void work();
  void refresh_configuration();
  void finish();
  bool may_restart(const ContainerRecord& c) const;
  /// Starts the container if it is due; otherwise schedules the start.
  void start_if_due(std::size_t i);
  void start(std::size_t i);
  void wait(std::size_t i, const std::string& reason, const std::string& message, const char* event,
            std::optional<Duration> retry = {});
  /// The reason why a container cannot start yet: a kubelet's reason, the event's, the message.
  struct Obstacle {
    std::string reason;
    const char* event;
    std::string message;
    std::optional<Duration> retry = {};
  };
  std::optional<Obstacle> start_blocker(std::size_t i);
  Status make_pod();
  Status prepare();
  /// Removes everything of the pod except files. False: not yet.
  bool release();
  Result<ContainerConfig> configure(std::size_t i);
  void end_container(std::size_t i, Duration grace);
  void end_all(Duration grace);
  void begin_probes(std::size_t i);
  void run_probes(std::size_t i);
  void start_probe(std::size_t i, ProbeKind kind, const Json& handler,
                   std::chrono::milliseconds timeout);
  void back_off(Live& live);
  void due(SteadyTime when);
  Status save();
  void report();
  std::string now_text() const;
  const std::string& host_ip() const { return shared_.options.node_address; }
  Duration grace() const;
  void event(const std::string& type, const std::string& reason, const std::string& message);

  const Shared& shared_;
  PodRecord record_;
  const std::string uid_;
  const os::Path directory_;
  std::unique_ptr<ConfigSource> config_;
  std::vector<Live> live_;
  bool prepared_ = false;
  std::optional<SteadyTime> refresh_at_;  // of mounted configuration; absent: none is mounted
  bool released_ = false;                 // ended for good, and removed from the driver
  bool removed_ = false;
  bool ending_ = false;
  bool reported_ = false;  // a status was reported since the runner started
  bool done_ = false;
  Duration granted_{0};    // while stopping: the last requested grace
  SteadyTime retry_at_{};  // after a failed save or cleanup
  std::string saved_;      // the record on disk
  std::string last_event_;
  std::optional<SteadyTime> next_;
};

}  // namespace varda::node::internal
