#include "node/internal/pod_worker.h"

#include <algorithm>

#include "base/log.h"
#include "meta/object.h"
#include "node/internal/addresses.h"
#include "node/internal/config_cache.h"
#include "node/internal/isolation.h"
#include "node/internal/last_output.h"
#include "node/internal/status.h"
#include "node/internal/volumes.h"
#include "node/log_stream.h"

namespace varda::node::internal {
namespace {

using State = ContainerRecord::State;
using std::chrono::seconds;

constexpr auto kRetrySave = seconds(5);
// Missing objects may appear at any time, and checking is cheap.
constexpr auto kRetryConfig = seconds(5);
constexpr auto kRefreshConfig = seconds(60);  // of what running containers have mounted
constexpr auto kRefreshSlow = seconds(600);   // where that failed, or held up the other pods
constexpr auto kRefreshLong = seconds(1);
constexpr auto kKillAgain = seconds(5);
constexpr int kUnseenExit = 137;
constexpr std::size_t kMessageBytesMax =
    4096;  // kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure

std::string after(Duration delay) {
  const auto left = std::chrono::duration_cast<seconds>(delay).count();
  const std::string seconds_part = std::to_string(left % 60) + "s";
  return left < 60 ? seconds_part : std::to_string(left / 60) + "m" + seconds_part;
}

std::vector<std::string> strings(const Json& list,
                                 const std::map<std::string, std::string>& values) {
  std::vector<std::string> out;
  for (const Json& item : list.as_array()) out.push_back(expand(item.as_string(), values));
  return out;
}

}  // namespace

// Changes by our own reports come back with every event. They are no news, and not worth a write.
Json PodWorker::strip(Json pod) {
  Json others = Json::array();
  for (const Json& condition : pod.at("status/conditions").as_array()) {
    const std::string& type = condition["type"].as_string();
    if (type != "Initialized" && type != "Ready" && type != "ContainersReady")
      others.push_back(condition);
  }
  pod.set("status", Json::object({{"conditions", std::move(others)}}));
  pod["metadata"].erase("managedFields");
  pod["metadata"].erase("resourceVersion");
  return pod;
}

PodWorker::PodWorker(const Shared& shared, PodRecord record)
    : shared_(shared),
      record_(std::move(record)),
      uid_(record_.name().uid),
      directory_(pod_directory(shared.options.root, record_.name().ns, record_.name().name, uid_)),
      config_(make_config_cache(shared.host, shared.fs, directory_ / "config.json",
                                record_.name().ns)) {
  live_.resize(container_count());
  bind_specs();
  if (record_.start_time.empty()) record_.start_time = now_text();
}

// The specs point into record_.pod, so call this after each replacement.
void PodWorker::bind_specs() {
  const Json& spec = record_.pod["spec"];
  for (std::size_t i = 0; i < live_.size(); ++i) {
    Live& live = live_[i];
    live.init = i < record_.init.size();
    live.spec = live.init ? &spec["initContainers"].as_array()[i]
                          : &spec["containers"].as_array()[i - record_.init.size()];
    if (live.init) continue;
    live.startup.spec = live.spec->find("startupProbe");
    live.liveness.spec = live.spec->find("livenessProbe");
    live.readiness.spec = live.spec->find("readinessProbe");
  }
}

void PodWorker::adopt(const std::vector<FoundContainer>& running) {
  const SteadyTime now = shared_.clock.now();
  const bool rebooted = record_.boot != shared_.boot;
  for (std::size_t i = 0; i < live_.size(); ++i) {
    ContainerRecord& c = container(i);
    ContainerName name = run_name(c);
    // A start that failed with a lost answer may have succeeded.
    if (!c.running() && c.state != State::kStarting) ++name.attempt;
    // After a reboot, pid and start time may match another process.
    if (rebooted && c.running()) c.id.clear();
    const auto found = std::find_if(running.begin(), running.end(),
                                    [&](const FoundContainer& f) { return f.name == name; });
    if (found != running.end()) {
      if (!c.running()) c.started = now_text();
      if (c.state == State::kTerminated) c.last = c.ended;
      c.attempt = name.attempt;
      c.state = State::kRunning;
      c.id = found->id;
      live_[i].running_since = now;
      if (!found->ended) begin_probes(i);
    } else if (c.state == State::kStarting) {
      // The start did not happen. The next start uses the same attempt number.
      c.state = State::kWaiting;
      --c.attempt;
    }
  }
}

void PodWorker::update(Json pod) {
  // Like a kubelet, a changed spec does not restart containers: the first desired spec stays.
  Json spec = record_.pod["spec"];
  if (pod.at("spec/terminationGracePeriodSeconds").is_integer()) {
    spec.set("terminationGracePeriodSeconds", pod.at("spec/terminationGracePeriodSeconds"));
  }
  record_.pod = strip(std::move(pod));
  record_.pod.set("spec", std::move(spec));
  bind_specs();
  removed_ = false;
}

void PodWorker::remove() { removed_ = true; }

std::optional<SteadyTime> PodWorker::step() {
  next_.reset();
  if (done_) return next_;
  const SteadyTime now = shared_.clock.now();
  collect_exits();
  if (now < retry_at_) {
    due(retry_at_);
  } else if (leaving()) {
    finish();
  } else if (!is_terminal(record_)) {
    work();
    refresh_configuration();
  }
  if (done_) return std::nullopt;
  report();
  const Status saved = save();
  if (!saved.ok()) {
    log::error("a pod's record cannot be written",
               {{"pod", text(name())}, {"error", saved.error()}});
    due(now + kRetrySave);
  } else if (!leaving() && !released_ && is_terminal(record_) && !anything_runs() &&
             now >= retry_at_) {
    released_ = release();
  }
  return next_;
}

bool PodWorker::release() {
  const Status removed = shared_.driver.remove_pod(uid_);
  if (removed.ok()) return true;
  log::warn("cannot remove a pod from the driver, retrying",
            {{"pod", text(name())}, {"error", removed.error()}});
  retry_at_ = shared_.clock.now() + kRetrySave;
  due(retry_at_);
  return false;
}

void PodWorker::collect_exits() {
  for (std::size_t i = 0; i < live_.size(); ++i) {
    ContainerRecord& c = container(i);
    if (!c.running()) continue;
    if (const auto exit = shared_.driver.poll(c.id, run_name(c))) on_exit(i, *exit);
  }
}

void PodWorker::on_exit(std::size_t i, const ContainerExit& exit) {
  ContainerRecord& c = container(i);
  Live& live = live_[i];
  const SteadyTime now = shared_.clock.now();
  c.ended = {
      .code = exit.known ? exit.code : kUnseenExit,
      .signal = exit.signal,
      .reason = !exit.known            ? "ContainerStatusUnknown"
                : !exit.reason.empty() ? exit.reason
                : exit.code == 0       ? "Completed"
                                       : "Error",
      .message =
          exit.known ? "" : "the agent did not see the container end, so its exit code is unknown",
      .id = c.id,
      .started = c.started,
      .finished = now_text()};
  // The process driver has no file for terminationMessagePath; the fallback to logs always works.
  if (exit.known && shared_.driver.private_root()) {
    c.ended.message =
        file_fields(shared_.fs, directory_ / (c.name + ".termination"), kMessageBytesMax);
  }
  if (exit.known && exit.code != 0 && c.ended.message.empty() &&
      (*live.spec)["terminationMessagePolicy"].as_string() == "FallbackToLogsOnError") {
    c.ended.message = last_output(shared_.fs, directory_ / (c.name + ".log"), record_.log_format);
  }
  c.state = State::kTerminated;
  c.id.clear();
  c.up = c.ready = false;
  live.ending = false;
  live.kill_at.reset();
  live.has_config = false;
  if (!exit.known || now - live.running_since >= shared_.options.backoff_reset)
    live.backoff = Duration{0};
  live.waits = live.backoff;
  live.not_before = now + live.waits;
  back_off(live);
}

void PodWorker::back_off(Live& live) {
  live.backoff = live.backoff == Duration{0}
                     ? Duration(shared_.options.backoff_first)
                     : std::min<Duration>(live.backoff * 2, shared_.options.backoff_max);
}

bool PodWorker::may_restart(const ContainerRecord& c) const {
  if (c.state != State::kTerminated) return true;
  const bool init = &c >= record_.init.data() && &c < record_.init.data() + record_.init.size();
  const std::string policy = record_.restart_policy();
  if (policy == "Never") return false;
  return (policy == "Always" && !init) || c.ended.code != 0;
}

void PodWorker::work() {
  if (live_.empty()) return;
  if (container(0).attempt < 0) {
    // The server would find the port taken, and its backoff would outlast the other pod's stop.
    if (const std::string held = shared_.port_held(*this); !held.empty()) {
      container(0).message = held;
      return;
    }
  }
  for (std::size_t i = 0; i < live_.size(); ++i) {
    ContainerRecord& c = container(i);
    if (c.running()) {
      run_probes(i);
    } else if (may_restart(c)) {
      start_if_due(i);
    }
    // Init containers run one after another.
    if (live_[i].init && !c.succeeded()) return;
  }
}

void PodWorker::refresh_configuration() {
  if (!anything_runs() || !has_configuration(record_)) return refresh_at_.reset();
  const SteadyTime now = shared_.clock.now();
  if (!refresh_at_) refresh_at_ = now + kRefreshConfig;
  if (now >= *refresh_at_) {
    const Status refreshed = refresh_volumes(shared_.fs, directory_, record_, host_ip(), *config_);
    if (!refreshed.ok())
      log::warn("configuration of a running pod not refreshed",
                {{"pod", text(name())}, {"error", refreshed.error()}});
    const SteadyTime after = shared_.clock.now();
    refresh_at_ =
        after + (refreshed.ok() && after - now < kRefreshLong ? kRefreshConfig : kRefreshSlow);
  }
  due(*refresh_at_);
}

void PodWorker::start_if_due(std::size_t i) {
  ContainerRecord& c = container(i);
  Live& live = live_[i];
  if (live.not_before <= shared_.clock.now()) return start(i);
  due(live.not_before);
  if (c.state != State::kTerminated) return;
  c.last = c.ended;
  c.state = State::kWaiting;
  c.reason = "CrashLoopBackOff";
  c.message = "back-off " + after(live.waits) + " restarting failed container=" + c.name +
              " pod=" + name().name + "_" + name().ns + "(" + uid_ + ")";
  event("Warning", "BackOff",
        "Back-off restarting failed container " + c.name + " in pod " + name().name + "_" +
            name().ns + "(" + uid_ + ")");
}

void PodWorker::wait(std::size_t i, const std::string& reason, const std::string& message,
                     const char* event_reason, std::optional<Duration> retry) {
  ContainerRecord& c = container(i);
  Live& live = live_[i];
  if (c.state == State::kTerminated) c.last = c.ended;
  c.state = State::kWaiting;
  c.reason = reason;
  c.message = message;
  if (!retry) {
    if (live.backoff == Duration{0}) back_off(live);
    retry = live.backoff;
    back_off(live);
  }
  live.not_before = shared_.clock.now() + *retry;
  due(live.not_before);
  event("Warning", event_reason, message);
}

void PodWorker::start(std::size_t i) {
  ContainerRecord& c = container(i);
  Live& live = live_[i];
  if (const auto obstacle = start_blocker(i))
    return wait(i, obstacle->reason, obstacle->message, obstacle->event, obstacle->retry);
  Result<ContainerConfig> config = configure(i);
  if (!config.ok())
    return wait(i, "CreateContainerConfigError", config.error().message(), "Failed", kRetryConfig);

  const ContainerRecord before = c;
  if (c.state == State::kTerminated) c.last = c.ended;
  c.state = State::kStarting;
  record_.boot = shared_.boot;
  ++c.attempt;
  c.reason.clear();
  c.message.clear();
  config->name = run_name(c);
  // Write the intention first: a runner killed right after the start must know that a process may
  // exist.
  if (const Status saved = save(); !saved.ok()) {
    c = before;
    return wait(i, "CreateContainerError", saved.error().message(), "Failed");
  }
  Status logs = shared_.fs.remove(directory_ / (c.name + ".log.1"));
  if (const auto log = shared_.fs.stat(config->log); logs.ok() && log.ok() && *log) {
    logs = shared_.fs.rename(config->log, directory_ / (c.name + ".previous.log"));
  }
  if (!logs.ok())
    log::warn("cannot move the log of the previous run",
              {{"pod", text(name())}, {"error", logs.error()}});
  Result<std::string> id = shared_.driver.start(*config);
  const SteadyTime now = shared_.clock.now();
  if (!id.ok()) {
    c = before;
    if (id.error().code() == Code::kForbidden)
      return wait(i, "CreateContainerConfigError", id.error().message(), "Failed");
    if (id.error().code() == Code::kUnsupported && !config->mounts.empty())
      return wait(i, "MountUnsupported", id.error().message(), "FailedMount");
    return wait(i, "RunContainerError", id.error().message(), "Failed");
  }
  c.state = State::kRunning;
  c.id = std::move(id).value();
  c.started = now_text();
  live.config = std::move(config).value();
  live.has_config = true;
  live.running_since = now;
  begin_probes(i);
  run_probes(i);
  event("Normal", "Started", "Started container " + c.name);
  if (const Status saved = save(); !saved.ok())
    log::error("a pod's record cannot be written",
               {{"pod", text(name())}, {"error", saved.error()}});
}

std::optional<PodWorker::Obstacle> PodWorker::start_blocker(std::size_t i) {
  if (const Status known = shared_.driver.check_image((*live_[i].spec)["image"].as_string());
      !known.ok()) {
    const std::string& message = known.error().message();
    switch (known.error().code()) {
      case Code::kUnsupported:
        return Obstacle{.reason = "ImageUnsupported", .event = "Failed", .message = message};
      // The image may be imported at any time.
      case Code::kNotFound:
        return Obstacle{.reason = "ErrImageNeverPull",
                        .event = "ErrImageNeverPull",
                        .message = message,
                        .retry = kRetryConfig};
      case Code::kUnavailable:
      case Code::kTimeout:
        return Obstacle{.reason = "ContainerCreating",
                        .event = "Failed",
                        .message = message,
                        .retry = kRetryConfig};
      default:
        return Obstacle{
            .reason = "ImageInspectError", .event = "InspectFailed", .message = message};
    }
  }
  if (const Status made = make_pod(); !made.ok()) {
    return Obstacle{.reason = "ContainerCreating",
                    .event = "FailedCreatePodSandBox",
                    .message = made.error().message(),
                    .retry = kRetryConfig};
  }
  if (const Status prepared = prepare(); !prepared.ok()) {
    return Obstacle{.reason = "ContainerCreating",
                    .event = "FailedMount",
                    .message = prepared.error().message(),
                    .retry = kRetryConfig};
  }
  return std::nullopt;
}

Status PodWorker::make_pod() {
  TRY_VOID(shared_.fs.make_directories(directory_, 0750));
  TRY(const std::string own, shared_.driver.prepare_pod(pod_config(record_, directory_)));
  record_.log_format = shared_.driver.log_format();
  if (record_.host_network()) return {};
  // The address belongs to a removed sandbox, or to another driver.
  const bool stale = own.empty() && !record_.ip.starts_with("127.");
  if (own.empty() && !stale) return {};
  if (own != record_.ip) prepared_ = false;
  record_.ip = own;
  return {};
}

Status PodWorker::prepare() {
  if (prepared_) return {};
  if (record_.host_network()) {
    record_.ip = host_ip();
  } else if (record_.ip.empty()) {
    std::vector<Port> ports;
    for (const Json& c : record_.pod.at("spec/containers").as_array()) {
      for (const Json& port : c["ports"].as_array()) {
        ports.push_back({.number = static_cast<int>(port["containerPort"].as_integer()),
                         .udp = port["protocol"].as_string() == "UDP"});
      }
    }
    TRY(record_.ip, pick_address(shared_.rng, shared_.addresses_in_use(), ports));
  }
  TRY_VOID(make_volumes(shared_.fs, directory_, record_, host_ip(), *config_));
  prepared_ = true;
  return {};
}

Result<ContainerConfig> PodWorker::configure(std::size_t i) {
  const Json& spec = *live_[i].spec;
  ContainerConfig config;
  config.image = spec["image"].as_string();
  TRY(config.environment, make_environment(record_, host_ip(), spec, *config_));
  std::map<std::string, std::string> values = config.environment;
  values.emplace("POD_IP", record_.ip);
  config.command = strings(spec["command"], values);
  config.arguments = strings(spec["args"], values);
  config.working_directory = spec["workingDir"].as_string();
  config.pod_directory = directory_;
  config.log = directory_ / (container(i).name + ".log");
  config.pod_ip = record_.ip;
  TRY(config.mounts, make_mounts(shared_.fs, directory_, record_, spec, values));
  config.pod = pod_config(record_, directory_);
  config.resources = container_resources(spec);
  config.security = container_security(record_.pod["spec"], spec);
  if (shared_.driver.private_root()) {
    const os::Path message = directory_ / (container(i).name + ".termination");
    TRY([[maybe_unused]] const auto empty, shared_.fs.open(message, os::Open::kTruncate));
    TRY_VOID(shared_.fs.set_mode(message, 0666));  // for any user of the container
    config.mounts.push_back(
        {.source = message,
         .target = spec["terminationMessagePath"].string_or("/dev/termination-log"),
         .read_only = false});
  }
  config.name = run_name(container(i));
  return config;
}

bool PodWorker::anything_runs() const {
  const auto runs = [](const ContainerRecord& c) { return c.running(); };
  return std::any_of(record_.init.begin(), record_.init.end(), runs) ||
         std::any_of(record_.main.begin(), record_.main.end(), runs);
}

Duration PodWorker::grace() const {
  const Json& requested = record_.pod.at("metadata/deletionGracePeriodSeconds");
  const Json& usual = record_.pod.at("spec/terminationGracePeriodSeconds");
  const bool deleting = record_.deleting() && !removed_ && requested.is_integer();
  return seconds(
      std::max<std::int64_t>(0, deleting ? requested.as_integer() : usual.as_integer(30)));
}

void PodWorker::end_all(Duration wanted) {
  for (std::size_t i = 0; i < live_.size(); ++i) {
    if (container(i).running()) end_container(i, wanted);
  }
}

void PodWorker::end_container(std::size_t i, Duration wanted) {
  ContainerRecord& c = container(i);
  Live& live = live_[i];
  const SteadyTime now = shared_.clock.now();
  if (!live.ending) {
    live.ending = true;
    live.kill_at = now + wanted;
    event("Normal", "Killing", "Stopping container " + c.name);
    const Json& hook = live.spec->at("lifecycle/preStop");
    if (wanted > Duration{0} &&
        (hook.contains("exec") || hook.contains("httpGet") || hook.contains("tcpSocket"))) {
      start_probe(i, ProbeKind::kPreStop, hook,
                  std::chrono::duration_cast<std::chrono::milliseconds>(wanted));
    } else {
      shared_.driver.stop(c.id, run_name(c), StopSignal::kTerminate);
    }
  }
  if (now + wanted < *live.kill_at) live.kill_at = now + wanted;
  if (now >= *live.kill_at) {
    shared_.driver.stop(c.id, run_name(c), StopSignal::kKill);
    live.kill_at = now + kKillAgain;
  }
  due(*live.kill_at);
}

void PodWorker::finish() {
  const Duration wanted = grace();
  if (!ending_ || wanted < granted_) {
    ending_ = true;
    granted_ = wanted;
    end_all(wanted);
  } else {
    // Keeps the deadlines: end_container() only checks them.
    for (std::size_t i = 0; i < live_.size(); ++i) {
      if (!container(i).running()) continue;
      const SteadyTime now = shared_.clock.now();
      end_container(i, live_[i].kill_at ? std::max(Duration{0}, *live_[i].kill_at - now) : wanted);
    }
  }
  collect_exits();
  if (anything_runs()) return;
  const bool ever_started = std::any_of(record_.main.begin(), record_.main.end(),
                                        [](const ContainerRecord& c) { return c.attempt >= 0; });
  if (ever_started) report();
  if (!release()) return;
  const Status cleared = shared_.fs.remove_all(directory_);
  if (!cleared.ok()) {
    log::warn("cannot remove a pod directory, retrying",
              {{"pod", text(name())}, {"error", cleared.error()}});
    retry_at_ = shared_.clock.now() + kRetrySave;
    due(retry_at_);
    return;
  }
  done_ = true;
  shared_.host.finished(name());
}

void PodWorker::due(SteadyTime when) {
  if (!next_ || when < *next_) next_ = when;
}

Status PodWorker::save() {
  std::string bytes = codec::write_json(record_.to_json());
  if (bytes == saved_) return {};
  TRY_VOID(shared_.fs.make_directories(directory_, 0750));
  TRY_VOID(os::write_file_atomically(shared_.fs, directory_ / "record.json", bytes, 0600));
  saved_ = std::move(bytes);
  return {};
}

void PodWorker::report() {
  Json status = make_status(record_, {.scheme = shared_.driver.scheme(),
                                      .host_ip = shared_.options.host_ip.value_or(host_ip()),
                                      .now = now_text()});
  if (reported_ && status == record_.status) return;
  reported_ = true;
  record_.status = std::move(status);
  shared_.host.status_changed(name(), record_.status);
}

std::string PodWorker::now_text() const { return meta::format_time(shared_.clock.wall()); }

// An event is not repeated until a different one occurs.
void PodWorker::event(const std::string& type, const std::string& reason,
                      const std::string& message) {
  std::string text = reason + ": " + message;
  if (text == last_event_) return;
  last_event_ = std::move(text);
  shared_.host.event(name(), type, reason, message);
}

}  // namespace varda::node::internal
