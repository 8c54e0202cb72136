#include "worker.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "base/text.h"
#include "codec/json.h"
#include "net/client.h"
#include "os/process.h"
#include "worker/api.h"
#include "worker/package.h"

namespace varda::aggregate {
namespace {

using aggregator::Snapshot;
using codec::Json;
using worker::WorkerApi;

constexpr std::chrono::seconds kErrorReport{10}, kGoodbye{10}, kAssignmentWait{60};
constexpr std::chrono::milliseconds kReportEvery{1000}, kLookEvery{5000}, kFirstPause{500},
    kLongestPause{30'000};
constexpr int kDefaultPort = 7363;
constexpr const char *kModelArtifact = "model", *kReportArtifact = "report",
                     *kCsvArtifact = "metrics";

bool is_wrong_input(const Error& error) {
  return error.code() == Code::kInvalid || error.code() == Code::kUnsupported ||
         error.code() == Code::kNotFound;
}

int exit_code_of(const Error& error) {
  if (error.code() == Code::kCancelled && os::stopping_signal() != 0)
    return 128 + os::stopping_signal();
  return is_wrong_input(error) ? 2 : 1;
}

/// The worker behind a stream, as the gateway or the agent named it.
Result<std::string> worker_of(const net::Peer& peer, const std::string& uid) {
  const auto& identity = peer.stream_identity;
  if (!identity)
    return Error(Code::kUnauthenticated, "only streams of nodes reach this aggregator");
  if (identity->job_uid != uid) return Error(Code::kForbidden, "the stream belongs to another job");
  if (!aggregator::Store::good_client(identity->worker))
    return Error(Code::kInvalid, "the stream has no usable name of a worker");
  return identity->worker;
}

/// Follows the assignment, and reports progress.
class Agent {
 public:
  Agent(WorkerApi& api, Job& job) : api_(api), job_(job) {
    const auto wake = wake_;
    job.coordinator().on_change([wake] {
      const MutexLock lock(wake->mutex);
      wake->changed = true;
      wake->condition.notify_all();
    });
    assignments_ = std::jthread([this](const std::stop_token& stop) { follow(Context(stop)); });
    reports_ = std::jthread([this](const std::stop_token& stop) { report(Context(stop)); });
  }
  ~Agent() { stop(); }

  void stop() {
    assignments_.request_stop();
    reports_.request_stop();
    if (assignments_.joinable()) assignments_.join();
    if (reports_.joinable()) reports_.join();
  }

 private:
  /// Shared with the listener, which lives as long as the job.
  struct Wake {
    Mutex mutex;
    CondVar condition;
    bool changed GUARDED_BY(mutex) = true;
  };

  Result<Assignment> next_assignment(const Context& ctx) {
    if (revision_.empty()) {
      const Json registration =
          Json::object({{"version", VARDA_VERSION},
                        {"instance", instance_},
                        {"capabilities", Json::array({"assignment", "resume"})}});
      TRY(const Json answer, api_.fetch(ctx, "POST", "/v1/register", registration));
      return parse_assignment(answer);
    }
    TRY(const Json answer, api_.fetch(ctx, "GET",
                                      "/v1/assignment?after=" + revision_ + "&timeoutSeconds=" +
                                          std::to_string(kAssignmentWait.count()),
                                      std::nullopt, kAssignmentWait));
    return parse_assignment(answer);
  }

  void follow(const Context& ctx) {
    std::chrono::milliseconds pause = kFirstPause;
    std::string logged;
    while (!ctx.done()) {
      const auto assignment = next_assignment(ctx);
      if (ctx.done()) return;
      Status status = assignment.ok() ? apply(*assignment) : assignment.error();
      if (status.ok()) {
        pause = kFirstPause;
        logged.clear();
        continue;
      }
      if (status.error().message() != logged) {
        logged = status.error().message();
        log::warn("assignment not available, retrying", {{"error", logged}});
      }
      (void)ctx.sleep_for(pause);
      pause = std::min(2 * pause, kLongestPause);
    }
  }

  Status apply(const Assignment& assignment) {
    revision_ = assignment.revision;
    job_.coordinator().set_participants(assignment.participants);
    if (!assignment.parameters.is_object()) return {};
    const auto settings = federated::parse_settings(assignment.parameters);
    if (settings.ok()) return job_.coordinator().update_settings(*settings);
    // The job continues with the settings that it has.
    log::warn("settings in the assignment are wrong", {{"error", settings.error()}});
    return {};
  }

  void report(const Context& ctx) {
    std::chrono::milliseconds pause = kReportEvery;
    std::string progress, rounds;
    while (!ctx.done()) {
      const Snapshot now = job_.coordinator().snapshot();
      const Json progress_now = progress_body(now), rounds_now = rounds_body(now);
      Status status;
      if (std::string text = codec::write_json(progress_now); text != progress) {
        status = api_.send(ctx, "PUT", "/v1/progress", progress_now);
        if (status.ok()) progress = std::move(text);
      }
      if (std::string text = codec::write_json(rounds_now);
          status.ok() && text != rounds && !now.history.empty()) {
        status = api_.send(ctx, "PUT", "/v1/results/rounds", rounds_now);
        if (status.ok()) rounds = std::move(text);
      }
      if (!status.ok() && !ctx.done())
        log::warn("progress not reported", {{"error", status.error()}});
      pause = status.ok() ? kReportEvery : std::min(2 * pause, kLongestPause);
      if (!ctx.sleep_for(pause).ok()) return;
      const MutexLock lock(wake_->mutex);
      // Updates that arrive change no task, so they are found by looking.
      const SteadyTime look = system_clock().now() + kLookEvery;
      while (!wake_->changed && status.ok() && !ctx.done())
        if (!wake_->condition.wait_until(wake_->mutex, ctx.stop_token(), look)) break;
      wake_->changed = false;
    }
  }

  WorkerApi& api_;
  Job& job_;
  const std::string instance_ = system_rng().uuid();
  const std::shared_ptr<Wake> wake_ = std::make_shared<Wake>();
  std::string revision_;  // of the thread of assignments
  std::jthread assignments_, reports_;
};

/// One line on standard error, and the result `error` if the agent answers soon.
int fail(const Context& ctx, WorkerApi* api, const Error& error) {
  const int code = exit_code_of(error);
  std::fprintf(stderr, "varda-aggregate: %s\n", error.message().c_str());
  if (api == nullptr || error.code() == Code::kCancelled) return code;
  // A job that has failed by its own rules fails in the same way after a restart.
  const bool permanent = is_wrong_input(error) || error.terminal();
  const Json data = Json::object(
      {{"message", worker::message_for_agent(error.message())}, {"permanent", permanent}});
  const Status sent = api->deliver(ctx.with_timeout(kErrorReport), "PUT", "/v1/results/error",
                                   Json::object({{"data", data}}));
  if (!sent.ok()) log::warn("error not reported", {{"error", sent.error()}});
  return code;
}

Status hand_over(const Context& ctx, WorkerApi& api, os::FileSystem& fs, Job& job,
                 const os::Path& directory) {
  const Snapshot end = job.coordinator().snapshot();
  worker::Delivery model{.file = job.model_file(), .digest = {}};
  if (model.file == "model.onnx") {
    TRY(model, worker::package(ctx, fs, directory, job.source()));
  } else {
    TRY(model.digest, worker::digest_of_file(fs, directory / model.file));
  }
  for (const auto& [file, artifact] :
       {std::pair("report.html", kReportArtifact), std::pair("metrics.csv", kCsvArtifact)}) {
    TRY(const codec::Sha256 digest, worker::digest_of_file(fs, directory / file));
    TRY_VOID(api.upload(ctx, directory / file, artifact, digest.hex()));
  }
  TRY_VOID(api.upload(ctx, directory / model.file, kModelArtifact, model.digest.hex()));
  // A short job may end before its first report.
  TRY_VOID(api.deliver(ctx, "PUT", "/v1/progress", progress_body(end)));
  TRY_VOID(api.deliver(ctx, "PUT", "/v1/results/rounds", rounds_body(end)));
  TRY_VOID(api.deliver(ctx, "PUT", "/v1/results/final",
                       final_body(end, {.artifact = kModelArtifact,
                                        .report = kReportArtifact,
                                        .csv = kCsvArtifact,
                                        .file = model.file.ends_with(".tar") ? "" : model.file,
                                        .format = job.format()})));
  log::info("result accepted by the agent", {{"sha256", model.digest.hex()}});
  return {};
}

Status run_job(const Context& ctx, Contract contract, const Flags& flags, os::FileSystem& fs,
               WorkerApi* api) {
  contract.job.admin = flags.admin;
  if (api != nullptr)
    contract.job.admission = aggregator::Coordinator::Options::Admission::kAssigned;
  const os::Path directory = contract.job.directory;
  TRY(const auto job, Job::open(std::move(contract.job), fs));
  log::info("aggregator is ready", {{"job", contract.name}, {"address", job->address()}});
  Status status;
  {
    std::optional<Agent> agent;
    if (api != nullptr) agent.emplace(*api, *job);
    status = job->run(ctx);
    job->dismiss(ctx, kGoodbye);
  }
  TRY_VOID(std::move(status));
  return api == nullptr ? Status() : hand_over(ctx, *api, fs, *job, directory);
}

}  // namespace

Result<Contract> read_contract(const worker::Environment& environment) {
  using worker::value_of;
  Contract out;
  TRY(out.job.model, worker::path_of(environment, "BASE_MODEL_URL",
                                     "the aggregator needs spec.aggregationWorker.model"));
  TRY(out.job.directory, worker::path_of(environment, "MODEL_URL", "the directory for the result"));
  TRY(const Json parameters, worker::object_of(environment, "PARAMETERS"));
  TRY(out.job.settings, federated::parse_settings(parameters).context("PARAMETERS"));
  TRY(const Json federated, worker::object_of(environment, "FEDERATED"));
  out.name = federated["job"].as_string();
  out.uid = federated["uid"].as_string();
  out.authority_pem = federated["authority"].as_string();
  if (out.uid.empty()) return Error(Code::kInvalid, "FEDERATED must have the member uid");
  out.job.job = out.uid;
  const std::string port = value_of(environment, "AGG_BIND_PORT");
  const auto number = port.empty() ? std::optional(kDefaultPort) : parse_integer<int>(port);
  if (!number || *number < 0 || *number > 65'535)
    return Error(Code::kInvalid, "AGG_BIND_PORT must be a port, not \"" + port + "\"");
  const std::string host = value_of(environment, "POD_IP");
  out.job.listen = (host.empty()                          ? "0.0.0.0"
                    : host.find(':') == std::string::npos ? host
                                                          : "[" + host + "]") +
                   ":" + std::to_string(*number);
  const auto count = parse_integer<std::int64_t>(value_of(environment, "PARTICIPANTS_COUNT"));
  out.job.clients_expected = std::clamp<std::int64_t>(count.value_or(0), 0, 100'000);
  out.job.threads = std::max(1u, std::thread::hardware_concurrency());
  out.job.client_of = [uid = out.uid](const net::Request& request) {
    return worker_of(request.peer, uid);
  };
  out.job.flower_name = [uid = out.uid](const net::Peer& peer) { return worker_of(peer, uid); };
  const bool trusts_loopback = out.authority_pem.empty() || federated["trustLoopback"].as_bool();
  out.job.configure_server = [authority = out.authority_pem,
                              trusts_loopback](net::Server::Options& server) {
    server.proxy.emplace();
    server.proxy->trust.authority_pem = authority;
    server.proxy->trust.trust_unsigned_loopback = trusts_loopback;
  };
  return out;
}

Result<Assignment> parse_assignment(const Json& answer) {
  Assignment out{.revision = answer["revision"].as_string()};
  const Json& assignment = answer["assignment"];
  if (out.revision.empty() || !assignment["participants"].is_array())
    return Error(Code::kInvalid, "the assignment lists no participants");
  for (const Json& one : assignment["participants"].as_array())
    if (!one["worker"].as_string().empty()) out.participants.insert(one["worker"].as_string());
  out.parameters = assignment["parameters"];
  return out;
}

int work(const Context& ctx, const worker::Environment& environment, const Flags& flags,
         os::FileSystem& fs) {
  const worker::Access access = worker::access_of(environment);
  std::unique_ptr<net::HttpClient> http;
  std::unique_ptr<WorkerApi> api;
  if (access.socket.empty()) {
    log::warn("no worker API in the environment: nothing is reported",
              {{"variable", "VARDA_WORKER_SOCKET"}});
  } else {
    http = net::make_client({.unix_socket = access.socket.string()});
    api =
        std::make_unique<WorkerApi>(WorkerApi::Options{.token_file = access.token_file}, *http, fs);
  }
  auto contract = read_contract(environment);
  if (!contract.ok()) return fail(ctx, api.get(), contract.error());
  const Status status = run_job(ctx, std::move(*contract), flags, fs, api.get());
  return status.ok() ? 0 : fail(ctx, api.get(), status.error());
}

}  // namespace varda::aggregate
