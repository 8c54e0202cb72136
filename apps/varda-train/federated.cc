#include "federated.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

#include "aggregator_client.h"
#include "base/log.h"
#include "federated_console.h"
#include "model_directory.h"
#include "net/client.h"
#include "os/process.h"
#include "text.h"
#include "worker.h"
#include "worker/environment.h"

namespace varda::trainapp {
namespace {

using codec::Json;
using worker::value_of;

constexpr std::chrono::seconds kErrorTime{10};

void lower_priority(std::int64_t nice) {
  if (nice > 0 && ::setpriority(PRIO_PROCESS, 0, static_cast<int>(nice)) != 0)
    log::warn("niceness not set", {{"nice", nice}, {"errno", errno}});
}

/// The first task may come hours later. A missing path is reported now.
Status check_data(os::FileSystem& fs, const Job& job) {
  for (const os::Path& path :
       {job.model, job.data.path, job.evaluation ? job.evaluation->path : os::Path()}) {
    if (path.empty()) continue;
    TRY(const auto info, fs.stat(followed(path)));
    if (!info) return Error(Code::kNotFound, path.string() + " does not exist");
  }
  return {};
}

Result<participant::Outcome> run_client(const Context& ctx, const FederatedClient& client,
                                        net::HttpClient& http, infer::Engines& engines,
                                        os::FileSystem& fs, FederatedProgress& progress) {
  TRY(const auto lock, claim_directory(fs, client.worker.job.directory));
  TRY_VOID(check_data(fs, client.worker.job));
  lower_priority(client.worker.client.nice);
  FederatedWorker worker(client.worker, engines, fs, progress);
  const auto machine = participant::make_machine(fs, system_clock());
  return participant::run(ctx, client.protocol, http, fs, worker, *machine, progress);
}

/// One line on standard error, and the result `error` if the agent answers soon.
int report_failure(const Context& ctx, WorkerApi* api, const Error& error) {
  const int code = exit_code_of(error);
  std::fprintf(stderr, "varda-train: %s\n", error.message().c_str());
  if (api == nullptr || error.code() == Code::kCancelled) return code;
  const Json data = Json::object({{"message", worker::message_for_agent(error.message())},
                                  {"permanent", is_wrong_input(error)}});
  const Status sent = api->deliver(ctx.with_timeout(kErrorTime), "PUT", "/v1/results/error",
                                   Json::object({{"data", data}}));
  if (!sent.ok()) log::warn("error not reported", {{"error", sent.error()}});
  return code;
}

Error failed_job(const participant::Outcome& outcome) {
  return Error(Code::kUnavailable,
               "the job failed" + (outcome.message.empty() ? "" : ": " + outcome.message));
}

}  // namespace

Result<FederatedClient> read_federated_contract(const Environment& environment,
                                                os::FileSystem& fs) {
  FederatedClient out;
  Job& job = out.worker.job;
  // Without an initial model on the node, the aggregator sends the file.
  job.model = value_of(environment, "BASE_MODEL_URL");
  TRY(job.data.path, worker::path_of(environment, "TRAIN_DATASET_URL", "the path of the dataset"));
  job.data.format = value_of(environment, "TRAIN_DATASET_FORMAT");
  if (const std::string path = value_of(environment, "EVAL_DATASET_URL"); !path.empty())
    job.evaluation = DataSource{path, value_of(environment, "EVAL_DATASET_FORMAT")};
  TRY(job.directory,
      worker::path_of(environment, "MODEL_URL", "the directory for files that stay"));
  job.confine_data = true;
  job.classes_setting = "trainer.head.classes";
  TRY(const Json parameters, worker::object_of(environment, "PARAMETERS"));
  TRY(out.worker.client, parse_client_settings(parameters["client"]).context("PARAMETERS.client"));
  // The control plane wrote PARAMETERS, so a wrong aggregator cannot switch the protection off.
  TRY(out.protocol.secure,
      secure_identity(fs, parameters["secureAggregation"], out.worker.client.signing_key_file)
          .context("PARAMETERS.secureAggregation"));
  TRY(const Json federated, worker::object_of(environment, "FEDERATED"));

  out.worker.directory = job.directory;
  out.protocol.directory = job.directory / "client";
  out.protocol.job = federated["uid"].as_string();
  const std::string space = value_of(environment, "NAMESPACE");
  const std::string name = value_of(environment, "WORKER_NAME");
  if (!name.empty()) out.protocol.client = space.empty() ? name : space + "/" + name;
  out.protocol.when = out.worker.client.when;
  out.protocol.bytes_per_second = static_cast<std::uint64_t>(out.worker.client.bytes_per_second);
  if (const std::string host = value_of(environment, "AGG_IP"); !host.empty()) {
    const std::string port = value_of(environment, "AGG_PORT");
    const bool six = host.find(':') != std::string::npos && !host.starts_with("[");
    out.protocol.url =
        "http://" + (six ? "[" + host + "]" : host) + ":" + (port.empty() ? "7363" : port);
  }
  return out;
}

int train_federated(const Context& ctx, FederatedClient client, infer::Engines& engines,
                    os::FileSystem& fs) {
  FederatedConsole console(stderr, ::isatty(STDERR_FILENO) != 0, system_clock());
  const auto http = net::make_client({});
  const auto outcome = run_client(ctx, client, *http, engines, fs, console);
  if (!outcome.ok()) {
    const int code = exit_code_of(outcome.error());
    if (code > 128)
      std::fprintf(stderr, "varda-train: stopped; the same command continues\n");
    else
      std::fprintf(stderr, "varda-train: %s\n", outcome.error().message().c_str());
    return code;
  }
  if (outcome->failed) {
    std::fprintf(stderr, "varda-train: %s\n", failed_job(*outcome).message().c_str());
    return 1;
  }
  std::printf("the job is complete%s\n%llu updates accepted, %llu dropped; %s received, %s sent\n",
              outcome->message.empty() ? "" : (": " + outcome->message).c_str(),
              static_cast<unsigned long long>(outcome->accepted),
              static_cast<unsigned long long>(outcome->dropped),
              byte_text(outcome->received_bytes).c_str(), byte_text(outcome->sent_bytes).c_str());
  return 0;
}

int work_federated(const Context& ctx, const Environment& environment, FederatedParts parts) {
  const Access access = access_of(environment);
  std::unique_ptr<net::HttpClient> agent;
  std::unique_ptr<WorkerApi> api;
  std::unique_ptr<Reporter> reporter;
  if (access.socket.empty()) {
    log::warn("no worker API in the environment: nothing is reported",
              {{"variable", "VARDA_WORKER_SOCKET"}});
  } else {
    agent = net::make_client({.unix_socket = access.socket.string()});
    parts.api.token_file = access.token_file;
    api = std::make_unique<WorkerApi>(parts.api, *agent, parts.fs);
  }
  const auto client = read_federated_contract(environment, parts.fs);
  if (!client.ok()) return report_failure(ctx, api.get(), client.error());
  if (client->protocol.url.empty() && access.socket.empty())
    return report_failure(ctx, api.get(),
                          Error(Code::kInvalid,
                                "the variable AGG_IP is missing: the address of "
                                "the aggregator"));
  if (api) reporter = std::make_unique<Reporter>(parts.reporter, *api);
  FederatedReporter progress(reporter.get());
  FederatedClient reached = *client;
  AggregatorClient http(access.socket.empty() ? nullptr : stream_client(access, parts.fs),
                        reached.protocol.url.empty() ? nullptr : net::make_client({}));
  if (reached.protocol.url.empty()) reached.protocol.url = "http://aggregator";
  const auto outcome = run_client(ctx, reached, http, parts.engines, parts.fs, progress);
  const auto finish = [&]() -> Status {
    TRY_VOID(outcome);
    if (outcome->failed) return failed_job(*outcome);
    if (!api) return {};
    Json data = progress.data();
    data.set("receivedBytes", outcome->received_bytes);
    data.set("sentBytes", outcome->sent_bytes);
    return api->deliver(ctx, "PUT", "/v1/results/final", Json::object({{"data", std::move(data)}}));
  };
  const Status status = finish();
  if (reporter) reporter->stop();
  if (!status.ok()) return report_failure(ctx, api.get(), status.error());
  log::info("the federated job is complete", {{"updates_accepted", outcome->accepted}});
  return 0;
}

}  // namespace varda::trainapp
