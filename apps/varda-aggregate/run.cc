#include "run.h"

#include <algorithm>
#include <sys/resource.h>
#include <utility>

#include "base/log.h"
#include "base/metric_collector.h"
#include "html_report.h"

namespace varda::aggregate {
namespace {

using aggregator::Coordinator;
using aggregator::Snapshot;
using codec::Json;

constexpr std::chrono::seconds kStopGrace{5};
// Flower clients that leave before the end of the job come back after this time.
constexpr std::chrono::seconds kFlowerReturn{5};
constexpr std::size_t kOtherDescriptors = 200;  // files, and the admin's connections
constexpr const char* kRounds = "rounds";       // the directory of the job's state

/// Descriptors that this process may open, after the limit was raised as far as allowed.
std::size_t descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
  (void)::getrlimit(RLIMIT_NOFILE, &limit);
  return std::clamp<std::size_t>(limit.rlim_cur, 2 * kOtherDescriptors, 1 << 20);
}

}  // namespace

Result<std::string> client_of_header(const net::Request& request) {
  const auto name = request.headers.find("Varda-Client");
  if (!name) return Error(Code::kUnauthenticated, "the header Varda-Client must name the client");
  if (!aggregator::Store::good_client(*name))
    return Error(Code::kInvalid, "Varda-Client must be a name of at most 180 bytes");
  return std::string(*name);
}

Json status_json(const Snapshot& snapshot) {
  Json out = Json::object({{"job", snapshot.job},
                           {"phase", to_string(snapshot.phase)},
                           {"round", snapshot.round},
                           {"rounds", snapshot.rounds},
                           {"attempt", snapshot.attempt},
                           {"updates", snapshot.updates},
                           {"target", snapshot.target},
                           {"quorum", snapshot.quorum},
                           {"model", snapshot.model},
                           {"updatesSha256", snapshot.updates_digest},
                           {"receivedBytes", snapshot.received_bytes},
                           {"sentBytes", snapshot.sent_bytes}});
  if (snapshot.seconds_left) out.set("secondsLeft", *snapshot.seconds_left);
  if (snapshot.epsilon) out.set("epsilon", *snapshot.epsilon);
  Json clients = Json::object();
  for (const auto& client : snapshot.clients) {
    Json one = Json::object({{"state", to_string(client.state)}});
    if (!client.reason.empty()) one.set("reason", client.reason);
    clients.set(client.name, std::move(one));
  }
  out.set("clients", std::move(clients));
  Json history = Json::array();
  for (const auto& record : snapshot.history) history.push_back(federated::to_json(record));
  out.set("history", std::move(history));
  if (snapshot.phase == federated::RoundMachine::Phase::kFinished) {
    out.set("failed", snapshot.failed);
    out.set("reason", snapshot.reason);
    out.set("message", snapshot.message);
  }
  return out;
}

Result<std::unique_ptr<Job>> Job::open(JobOptions options, os::FileSystem& fs) {
  if (!options.flower.empty() && options.settings.secure)
    return Error(
        Code::kInvalid,
        "--flower excludes secureAggregation: Flower's clients send updates without masks");
  std::unique_ptr<Job> job(new Job());
  job->fs_ = &fs;
  TRY(job->source_, worker::read_model(fs, options.model).context("--model"));
  TRY(aggregator::ModelFile model,
      aggregator::ModelFile::parse(std::move(job->source_.bytes)).context(options.model.string()));
  job->model_ = std::make_unique<aggregator::ModelFile>(std::move(model));
  TRY_VOID(fs.make_directories(options.directory));
  TRY(job->coordinator_,
      Coordinator::open({.settings = options.settings,
                         .job = options.job,
                         .threads = options.threads,
                         .clients_expected = options.clients_expected,
                         .lost_after = options.lost_after,
                         .admission = options.admission,
                         .extras = {.labels = job->source_.labels, .yaml = job->source_.yaml}},
                        *job->model_, options.directory / kRounds, fs));
  job->model_->forget_weights();
  job->options_ = std::move(options);
  job->service_ = std::make_unique<aggregator::Service>(
      *job->coordinator_, aggregator::Service::Options{.client_of = job->options_.client_of,
                                                       .metrics = &job->metrics_});
  job->job_metrics_ = std::make_unique<aggregator::JobMetrics>(*job->coordinator_);
  net::Server::Options server = job->service_->server_options();
  server.connections_max = std::min(server.connections_max, descriptors() - kOtherDescriptors);
  server.listen = job->options_.listen;
  if (job->options_.configure_server) job->options_.configure_server(server);
  TRY_VOID(job->serve_flower().context("--flower"));
  if (job->flower_server_ && job->options_.flower_name) {
    server.http2 = [&flower = *job->flower_server_](std::unique_ptr<net::Tunnel> connection,
                                                    const net::Peer& peer) {
      flower.adopt(std::move(connection), peer);
    };
  }
  TRY(job->server_, net::Server::create(server, job->service_->handler()).context("--listen"));
  if (!job->options_.admin.empty()) {
    TRY(job->admin_,
        net::Server::create({.listen = job->options_.admin},
                            net::inline_handler([raw = job.get()](const net::Request& request) {
                              return raw->admin(request);
                            }))
            .context("--admin"));
  }
  return job;
}

Status Job::serve_flower() {
  const bool wanted = !options_.flower.empty();
  if (!wanted && !options_.flower_name) return {};
  auto rounds = aggregator::FlowerRounds::create(
      *coordinator_, {.order = model_->order(), .settings = options_.settings});
  // Clients of our own protocol may use rules that Flower clients cannot follow.
  if (!wanted && !rounds.ok() && rounds.error().code() == Code::kUnsupported) {
    log::info("job has no Flower clients", {{"reason", rounds.error()}});
    return {};
  }
  TRY(flower_rounds_, std::move(rounds));
  flower_ = std::make_unique<flower::Adapter>(
      flower::Adapter::Options{.name_of = options_.flower_name}, *flower_rounds_);
  // An answer has the weights as FP64 at most, and some bytes for each array.
  const std::size_t message =
      model_->layout().size() * 8 + model_->order().size() * 512 + (1 << 20);
  TRY(flower_server_,
      net::GrpcServer::create(
          {.listen = options_.flower,
           .message_bytes_max = message,
           .received_bytes_max = std::max<std::size_t>(2 * message, 64 << 20)},
          net::grpc_methods({{std::string(flower::kJoinMethod), flower_->handler()}})));
  return {};
}

Job::~Job() {
  if (flower_server_) {
    flower_->stop(kFlowerReturn, std::chrono::seconds(1));
    flower_server_->stop(std::chrono::milliseconds(0));
  }
  if (admin_) admin_->stop(std::chrono::milliseconds(100));
  if (service_) service_->drain();
  if (server_) server_->stop(kStopGrace);
}

net::Response Job::admin(const net::Request& request) {
  const std::string_view path = request.path();
  if (request.method != "GET" && request.method != "HEAD") return {.status = 405};
  if (path == "/healthz" || path == "/readyz") return {.body = "ok\n"};
  if (path == "/metrics")
    return {.headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
            .body = metrics_.text() + metrics::text_of({job_metrics_.get()})};
  if (path == "/status")
    return {.headers = {{"Content-Type", "application/json"}},
            .body = codec::write_json(status_json(coordinator_->snapshot())) + "\n"};
  return {.status = 404, .body = "the paths are /healthz, /readyz, /metrics and /status\n"};
}

Status Job::run(const Context& ctx) {
  TRY_VOID(coordinator_->run(ctx));
  TRY_VOID(write_result());
  const Snapshot end = coordinator_->snapshot();
  if (end.failed) return Error(Code::kInternal, end.reason + ": " + end.message).as_terminal();
  return {};
}

Status Job::write_result() {
  const Snapshot end = coordinator_->snapshot();
  const os::Path& directory = options_.directory;
  TRY_VOID(os::write_file_atomically(*fs_, directory / "metrics.csv", coordinator_->metrics_csv()));
  TRY_VOID(os::write_file_atomically(*fs_, directory / "report.json",
                                     codec::write_json_pretty(status_json(end)) + "\n"));
  TRY_VOID(os::write_file_atomically(*fs_, directory / "report.html",
                                     html_report(end, options_.settings)));
  if (end.failed) return {};
  TRY(const federated::Weights weights, coordinator_->weights());
  TRY(const std::string bytes, model_->with(weights));
  TRY_VOID(worker::write_beside(*fs_, directory, source_, source_.labels));
  TRY_VOID(os::write_file_atomically(*fs_, directory / model_->file_name(), bytes));
  log::info("result written", {{"file", (directory / model_->file_name()).string()},
                               {"sha256", codec::Sha256::of(bytes).hex()}});
  return {};
}

void Job::dismiss(const Context& ctx, Duration grace) {
  const bool flower_clients = flower_ && (!options_.flower.empty() || flower_->clients() > 0);
  if (flower_)
    flower_->stop(std::chrono::seconds(0), std::chrono::ceil<std::chrono::milliseconds>(grace));
  // A job may have Flower clients alone.
  if (!flower_clients || service_->pollers() > 0) service_->wait_for_ends(ctx.with_timeout(grace));
  service_->drain();
}

}  // namespace varda::aggregate
