#include "node/containerd_driver.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <set>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "node/internal/containerd_note.h"
#include "node/internal/cri.h"
#include "node/internal/marked.h"

namespace varda::node {
namespace {

using cri::ContainerState;
using std::chrono::seconds;

// The runner enforces the grace period and requests SIGKILL itself. This limit only has to be
// longer.
constexpr seconds kTerminateGrace = std::chrono::hours(24);

const std::set<std::string> kOwnImages = {"varda", "varda-serve", "varda-train", "varda-aggregate"};

class ContainerdDriver final : public Driver {
 public:
  ContainerdDriver(ContainerdDriverOptions options, std::unique_ptr<net::GrpcClient> grpc)
      : options_(std::move(options)), grpc_(std::move(grpc)), runtime_(*grpc_) {}

  ~ContainerdDriver() override {
    on_exit({});
    std::list<Stop> stops;
    {
      MutexLock lock(mutex_);
      stops.swap(stops_);
    }
    for (Stop& stop : stops) stop.thread.request_stop();
  }

  std::string scheme() const override { return "containerd"; }
  LogFormat log_format() const override { return LogFormat::kCri; }
  bool private_root() const override { return true; }

  Status check_image(const std::string& image) const override {
    TRY([[maybe_unused]] const cri::Image found, resolve(image));
    return {};
  }

  Result<std::string> prepare_pod(const PodConfig& pod) override {
    TRY(const std::vector<cri::Sandbox> sandboxes, runtime_.sandboxes(ctx(), labels_of(pod.uid)));
    const cri::Sandbox* ready = nullptr;
    int attempt = 0;
    for (const cri::Sandbox& sandbox : sandboxes) {
      attempt = std::max(attempt, sandbox.attempt + 1);
      // A sandbox of another --pod-network setting is not reused.
      const bool fits =
          sandbox.ready && label(sandbox.labels, internal::kNetworkLabel) == network_of(pod);
      if (fits && (ready == nullptr || sandbox.attempt > ready->attempt)) ready = &sandbox;
    }
    for (const cri::Sandbox& sandbox : sandboxes) {
      if (&sandbox != ready) TRY_VOID(clear(sandbox));
    }
    if (ready != nullptr) return address(pod, ready->id);
    TRY(cri::SandboxConfig config, sandbox_of(pod));
    config.attempt = attempt;
    const Result<std::string> id = runtime_.run_sandbox(ctx(), config);
    if (id.ok()) return address(pod, *id);
    if (pod.host_network || id.error().message().find("cni") == std::string::npos)
      return id.error();
    return Error(id.error().code(),
                 "containerd cannot make a network for the pod: " + id.error().message() +
                     "; configure CNI (/etc/cni/net.d), or start the node with --pod-network node");
  }

  Status remove_pod(const std::string& uid) override {
    TRY(const std::vector<cri::Sandbox> sandboxes, runtime_.sandboxes(ctx(), labels_of(uid)));
    for (const cri::Sandbox& sandbox : sandboxes) {
      TRY_VOID(runtime_.stop_sandbox(ctx(), sandbox.id));
      TRY_VOID(runtime_.remove_sandbox(ctx(), sandbox.id));
    }
    return {};
  }

  Result<std::vector<std::string>> pods() override {
    TRY(const std::vector<cri::Sandbox> sandboxes, runtime_.sandboxes(ctx(), own_labels()));
    std::set<std::string> uids;
    for (const cri::Sandbox& sandbox : sandboxes)
      uids.insert(label(sandbox.labels, internal::kPodUidLabel));
    return std::vector<std::string>(uids.begin(), uids.end());
  }

  Result<std::string> start(const ContainerConfig& config) override {
    cri::Labels own_labels = labels_of(config.name.pod_uid);
    own_labels[internal::kContainerLabel] = config.name.container;
    TRY(const std::vector<cri::Container> before, runtime_.containers(ctx(), own_labels));
    std::string started_before;
    for (const cri::Container& container : before) {
      // An earlier start with a lost answer; the container may even have exited meanwhile.
      if (container.attempt == config.name.attempt && started_before.empty()) {
        TRY(const bool runs_or_ran, has_started(container.id));
        if (runs_or_ran) {
          started_before = container.id;
          continue;
        }
      }
      TRY_VOID(runtime_.remove_container(ctx(), container.id));
    }
    if (!started_before.empty()) return note_running(started_before);

    TRY(const cri::Image image, resolve(config.image));
    TRY_VOID(check_user(config.security, image));
    TRY(const std::string sandbox, ready_sandbox(config.name.pod_uid));
    cri::ContainerSpec spec{
        .config = config,
        .image_id = image.id,
        .user_name = {},
        .log_path = config.log.lexically_relative(config.pod.directory).string(),
        .labels = {}};
    spec.config.pod = placed(config.pod);
    give_user(spec, image);
    spec.config.environment.emplace("POD_IP", config.pod_ip);
    spec.labels = std::move(own_labels);
    spec.labels[internal::kPodNameLabel] = config.pod.name;
    spec.labels[internal::kPodNamespaceLabel] = config.pod.ns;
    TRY(const cri::SandboxConfig sandbox_config, sandbox_of(config.pod));
    TRY(const std::string id, runtime_.create_container(ctx(), sandbox, spec, sandbox_config));
    const Status started = runtime_.start_container(ctx(), id);
    if (started.ok()) return note_running(id);
    const Result<bool> all_the_same =
        has_started(id);  // the start may have succeeded with a lost answer
    if (all_the_same.ok() && *all_the_same) return note_running(id);
    // If removal fails now, the next start or the pod's removal repeats it.
    if (all_the_same.ok()) (void)runtime_.remove_container(ctx(), id);
    return started.error();
  }

  std::optional<ContainerExit> poll(const std::string& id, const ContainerName&) override {
    {
      MutexLock lock(mutex_);
      if (running_.contains(id)) return std::nullopt;
    }
    if (id.empty()) return ContainerExit{.code = 137, .signal = 0, .known = false, .reason = ""};
    const Result<cri::ContainerStatus> status = runtime_.container_status(ctx(), id);
    if (!status.ok()) {
      if (status.error().code() == Code::kNotFound)
        return ContainerExit{.code = 137, .signal = 0, .known = false, .reason = ""};
      return std::nullopt;  // unknown now; containers outlive containerd
    }
    if (status->state == ContainerState::kRunning) {
      (void)note_running(id);
      return std::nullopt;
    }
    // containerd reports "Unknown" for a container that exited while containerd was down, for
    // example at a reboot.
    const bool known = status->state == ContainerState::kExited && status->reason != "Unknown";
    return ContainerExit{.code = known ? status->exit_code : 137,
                         .signal = 0,
                         .known = known,
                         .reason = status->reason == "OOMKilled" ? status->reason : ""};
  }

  void stop(const std::string& id, const ContainerName&, StopSignal signal) override {
    if (id.empty()) return;
    std::list<Stop> ended;  // joined without the lock
    MutexLock lock(mutex_);
    for (auto it = stops_.begin(); it != stops_.end();) {
      const auto next = std::next(it);
      if (*it->done) {
        ended.splice(ended.end(), stops_, it);
      } else if (it->id == id && it->signal == signal) {
        return;
      }
      it = next;
    }
    auto done = std::make_shared<std::atomic<bool>>(false);
    stops_.push_back({.id = id,
                      .signal = signal,
                      .done = done,
                      .thread = std::jthread([this, id, signal, done](const std::stop_token& stop) {
                        end_container(Context(stop), id, signal);
                        *done = true;
                      })});
  }

  Result<int> exec(const Context& ctx, const ContainerConfig& config,
                   const std::vector<std::string>& command) override {
    cri::Labels own_labels = labels_of(config.name.pod_uid);
    own_labels[internal::kContainerLabel] = config.name.container;
    TRY(const std::vector<cri::Container> containers, runtime_.containers(ctx, own_labels));
    for (const cri::Container& container : containers) {
      if (container.state == ContainerState::kRunning && container.attempt == config.name.attempt)
        return runtime_.exec(ctx, container.id, command);
    }
    return Error(Code::kNotFound, "container " + config.name.container + " is not running");
  }

  Result<std::vector<FoundContainer>> find() override {
    TRY(const std::vector<cri::Container> containers, runtime_.containers(ctx(), own_labels()));
    std::vector<FoundContainer> found;
    for (const cri::Container& container : containers) {
      const bool runs = container.state == ContainerState::kRunning;
      if (!runs) {
        TRY(const bool ran, has_started(container.id));
        if (!ran) continue;
      }
      found.push_back({.name = {.pod_uid = label(container.labels, internal::kPodUidLabel),
                                .container = label(container.labels, internal::kContainerLabel),
                                .attempt = container.attempt},
                       .id = container.id,
                       .ended = !runs});
    }
    MutexLock lock(mutex_);
    for (const FoundContainer& container : found) {
      if (!container.ended) running_.insert(container.id);
    }
    return found;
  }

  void on_exit(std::function<void()> wake) override {
    std::jthread before;  // joined without the lock
    {
      MutexLock lock(mutex_);
      before = std::move(watch_);
    }
    before.request_stop();
    {
      MutexLock lock(wake_mutex_);
      wake_ = std::move(wake);
      if (!wake_) return;
    }
    MutexLock lock(mutex_);
    watch_ = std::jthread([this](const std::stop_token& stop) { watch(Context(stop)); });
  }

 private:
  struct Stop {
    std::string id;
    StopSignal signal;
    std::shared_ptr<std::atomic<bool>> done;
    std::jthread thread;
  };

  // Every call has a time limit that the runner's thread can wait for.
  static Context ctx() { return Context::background(); }

  cri::Labels own_labels() const {
    return {{internal::kRunnerLabel, internal::runner_mark(options_.root)}};
  }
  cri::Labels labels_of(const std::string& uid) const {
    cri::Labels labels = own_labels();
    labels[internal::kPodUidLabel] = uid;
    return labels;
  }
  static std::string label(const cri::Labels& labels, const char* name) {
    const auto found = labels.find(name);
    return found == labels.end() ? "" : found->second;
  }

  bool in_node_network(const PodConfig& pod) const {
    return pod.host_network || options_.pod_network == PodNetwork::kNode;
  }
  const char* network_of(const PodConfig& pod) const {
    return in_node_network(pod) ? "node" : "pod";
  }
  PodConfig placed(PodConfig pod) const {
    if (pod.host_network || !in_node_network(pod)) return pod;
    pod.host_network = true;
    pod.hostname.clear();
    pod.ports.clear();  // processes of the pod listen on the node themselves
    // These sysctls would change the node's network.
    std::erase_if(pod.sysctls, [](const auto& entry) {
      return entry.first.starts_with("net.") || entry.first.starts_with("net/");
    });
    return pod;
  }

  // Checked each time, because containerd may have been reconfigured and restarted.
  Result<std::string> cgroup_parent() const {
    TRY(const cri::CgroupDriver driver, runtime_.cgroup_driver(ctx()));
    switch (driver) {
      case cri::CgroupDriver::kSystemd:
        return std::string("varda.slice");  // systemd creates it, and rejects other forms
      case cri::CgroupDriver::kCgroupfs:
        return std::string("/varda");
      case cri::CgroupDriver::kUnknown:
        break;
    }
    return std::string();
  }

  Result<cri::SandboxConfig> sandbox_of(const PodConfig& pod) const {
    TRY(std::string cgroups, cgroup_parent());
    cri::SandboxConfig config{.pod = placed(pod),
                              .attempt = 0,
                              .labels = labels_of(pod.uid),
                              .cgroup_parent = std::move(cgroups)};
    config.labels[internal::kPodNameLabel] = pod.name;
    config.labels[internal::kPodNamespaceLabel] = pod.ns;
    config.labels[internal::kNetworkLabel] = network_of(pod);
    return config;
  }

  Result<std::string> address(const PodConfig& pod, const std::string& sandbox) const {
    if (in_node_network(pod)) return std::string();
    TRY(std::string address, runtime_.sandbox_address(ctx(), sandbox));
    if (address.empty()) return Error(Code::kUnavailable, "the pod's sandbox has no address");
    return address;
  }

  Result<std::string> ready_sandbox(const std::string& uid) const {
    TRY(const std::vector<cri::Sandbox> sandboxes, runtime_.sandboxes(ctx(), labels_of(uid)));
    const cri::Sandbox* best = nullptr;
    for (const cri::Sandbox& sandbox : sandboxes) {
      if (sandbox.ready && (best == nullptr || sandbox.attempt > best->attempt)) best = &sandbox;
    }
    if (best == nullptr) return Error(Code::kUnavailable, "the pod's sandbox has just ended");
    return best->id;
  }

  // A sandbox without its process cannot take further containers. Its running containers stop
  // first, and their exits are reported before the sandbox's record is removed.
  Status clear(const cri::Sandbox& sandbox) {
    TRY(const std::vector<cri::Container> containers, runtime_.containers(ctx(), own_labels()));
    const bool any =
        std::any_of(containers.begin(), containers.end(), [&](const cri::Container& container) {
          return container.sandbox_id == sandbox.id && container.state == ContainerState::kRunning;
        });
    TRY_VOID(runtime_.stop_sandbox(ctx(), sandbox.id));
    if (any) return Error(Code::kUnavailable, "the pod's sandbox and its containers have ended");
    return runtime_.remove_sandbox(ctx(), sandbox.id);
  }

  Result<cri::Image> resolve(const std::string& image) const {
    TRY(std::optional<cri::Image> found, runtime_.image(ctx(), image));
    if (!found && kOwnImages.contains(image)) {
      // `make images` builds the images that our controllers name like this.
      TRY(found, runtime_.image(ctx(), "localhost/" + image + ":" + VARDA_VERSION));
    }
    if (found) return *std::move(found);
    return Error(Code::kNotFound,
                 "image " + image +
                     " is not on this node, and the agent never pulls images: import it as " +
                     cri_image_name(image) + " (ctr --address " + options_.socket +
                     " -n k8s.io images import FILE)");
  }

  // A group requires a user. Like in a kubelet that is the image's user, numeric if possible.
  static void give_user(cri::ContainerSpec& spec, const cri::Image& image) {
    Security& security = spec.config.security;
    if (!security.group || security.user) return;
    if (image.uid || image.user.empty()) {
      security.user = image.uid.value_or(0);
    } else {
      spec.user_name = image.user;
    }
  }

  // Whether it runs or has run. containerd gives an exit code even to a container that could not
  // start.
  Result<bool> has_started(const std::string& id) const {
    const Result<cri::ContainerStatus> status = runtime_.container_status(ctx(), id);
    if (status.ok()) return status->state == ContainerState::kRunning || status->ever_ran;
    if (status.error().code() == Code::kNotFound) return false;
    return status.error();
  }

  // Same rules as a kubelet's for runAsNonRoot.
  static Status check_user(const Security& security, const cri::Image& image) {
    if (!security.must_not_be_root) return {};
    if (security.user ? *security.user != 0 : image.uid && *image.uid != 0) return {};
    if (!security.user && !image.uid && !image.user.empty())
      return Error(Code::kInvalid, "container has runAsNonRoot and image has non-numeric user (" +
                                       image.user + "), cannot verify user is non-root");
    return Error(Code::kInvalid, "container has runAsNonRoot and image will run as root");
  }

  std::string note_running(const std::string& id) {
    MutexLock lock(mutex_);
    running_.insert(id);
    return id;
  }

  void end_container(const Context& stopping, const std::string& id, StopSignal signal) {
    const seconds grace = signal == StopSignal::kKill ? seconds(0) : kTerminateGrace;
    // A signal may be lost, so the call is repeated. It succeeds once the container has ended,
    // whatever the cause.
    for (bool reported = false;; reported = true) {
      const Status ended = runtime_.stop_container(stopping, id, grace);
      if (ended.ok()) break;
      if (stopping.done()) return;
      if (!reported)
        log::warn("a container cannot be ended yet", {{"id", id}, {"error", ended.error()}});
      if (!stopping.sleep_for(options_.poll_period).ok()) return;
    }
    {
      MutexLock lock(mutex_);
      running_.erase(id);
    }
    wake();
  }

  void wake() {
    MutexLock lock(wake_mutex_);
    if (wake_) wake_();
  }

  void watch(const Context& until) {
    bool failing = false;
    while (until.sleep_for(options_.poll_period).ok()) {
      {
        MutexLock lock(mutex_);
        if (running_.empty()) continue;
      }
      const Result<std::vector<cri::Container>> containers =
          runtime_.containers(until, own_labels());
      if (!containers.ok()) {
        if (!failing && !until.done())
          log::warn("containerd does not answer", {{"error", containers.error()}});
        failing = true;
        continue;
      }
      if (failing) log::info("containerd answers again", {});
      failing = false;
      if (forget_ended(*containers)) wake();
    }
  }

  // May also drop a container that started after the list was taken; poll() then asks for it by id.
  bool forget_ended(const std::vector<cri::Container>& containers) {
    std::set<std::string> now;
    for (const cri::Container& container : containers) {
      if (container.state == ContainerState::kRunning) now.insert(container.id);
    }
    MutexLock lock(mutex_);
    return std::erase_if(running_, [&](const std::string& id) { return !now.contains(id); }) > 0;
  }

  const ContainerdDriverOptions options_;
  const std::unique_ptr<net::GrpcClient> grpc_;
  mutable cri::Runtime runtime_;

  Mutex mutex_;
  std::set<std::string> running_ GUARDED_BY(mutex_);  // ids, as last seen
  std::list<Stop> stops_ GUARDED_BY(mutex_);
  std::jthread watch_ GUARDED_BY(mutex_);
  Mutex wake_mutex_;  // held during the call, so that no call runs after a replacement
  std::function<void()> wake_ GUARDED_BY(wake_mutex_);
};

}  // namespace

std::string cri_image_name(const std::string& image) {
  const std::size_t slash = image.find('/');
  const std::string host = image.substr(0, slash);
  std::string name = image;
  if (slash == std::string::npos) {
    name = "docker.io/library/" + image;
  } else if (host.find_first_of(".:") == std::string::npos && host != "localhost") {
    name = "docker.io/" + image;
  }
  const std::string last = name.substr(name.rfind('/') + 1);
  return last.find_first_of(":@") == std::string::npos ? name + ":latest" : name;
}

Result<std::string> containerd_version(const Context& ctx, const std::string& socket) {
  const std::unique_ptr<net::GrpcClient> grpc = net::make_grpc_client({.unix_socket = socket});
  cri::Runtime runtime(*grpc);
  Result<std::string> version = runtime.version(ctx);
  if (version.ok() || ctx.stopped()) return version;
  const Error& error = version.error();
  if (error.code() == Code::kUnsupported) {
    return Error(Code::kUnsupported,
                 "the server at " + socket +
                     " does not serve CRI (runtime.v1); in containerd, enable the plug-in cri: " +
                     error.message());
  }
  return Error(Code::kUnavailable, "containerd does not answer at " + socket +
                                       ": start it, or name its socket with --containerd-socket; " +
                                       error.message());
}

std::unique_ptr<Driver> make_containerd_driver(ContainerdDriverOptions options,
                                               std::unique_ptr<net::GrpcClient> grpc) {
  return std::make_unique<ContainerdDriver>(std::move(options), std::move(grpc));
}

Result<std::unique_ptr<Driver>> make_containerd_driver(const Context& ctx,
                                                       ContainerdDriverOptions options) {
  TRY(const std::string version, containerd_version(ctx, options.socket));
  auto grpc = net::make_grpc_client({.unix_socket = options.socket});
  cri::Runtime runtime(*grpc);
  TRY(const std::vector<cri::Condition> conditions, runtime.status(ctx));
  for (const cri::Condition& condition : conditions) {
    if (!condition.holds)
      log::warn("containerd is not ready for every pod",
                {{"condition", condition.type}, {"message", condition.message}});
  }
  TRY_VOID(internal::write_containerd_note(options.root, {.socket = options.socket}));
  log::info("pods run in containerd", {{"version", version}, {"socket", options.socket}});
  return make_containerd_driver(std::move(options), std::move(grpc));
}

}  // namespace varda::node
