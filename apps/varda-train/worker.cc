#include "worker.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "codec/json.h"
#include "net/client.h"
#include "os/process.h"
#include "package.h"
#include "text.h"

namespace varda::trainapp {
namespace {

using codec::Json;

constexpr const char* kResultFile = "result.json";
constexpr const char* kReportFile = "report.html";
constexpr const char* kModelFile = "model.onnx";
constexpr std::uint64_t kResultBytesMax = 1 << 20;
constexpr std::chrono::seconds kErrorReport{10};
constexpr std::chrono::seconds kLogPause{1};  // short epochs would fill the pod's log

/// A finished run: its files, and the body of the result `final`.
struct Finished {
  std::string file;  // in the run's directory; "": the run has no model
  std::string digest, report_digest;
  Json body;
  std::string result = "final";
};

/// The result of an earlier start of this task, if its files are unchanged.
std::optional<Finished> read_finished(os::FileSystem& fs, const Contract& contract) {
  const os::Path& directory = contract.job.directory;
  const auto text = os::read_file(fs, directory / kResultFile, kResultBytesMax);
  if (!text.ok()) return std::nullopt;
  const auto stored = codec::parse_json(*text);
  if (!stored.ok() || (*stored)["task"].as_string() != contract.task) return std::nullopt;
  Finished out{(*stored)["file"].as_string(), (*stored)["sha256"].as_string(),
               (*stored)["reportSha256"].as_string(), (*stored)["body"]};
  for (const auto& [file, wanted] :
       {std::pair(out.file, out.digest), std::pair(std::string(kReportFile), out.report_digest)}) {
    if (file.empty() || file.find('/') != std::string::npos) return std::nullopt;
    const auto digest = digest_of_file(fs, directory / file);
    if (!digest.ok() || digest->hex() != wanted) return std::nullopt;
  }
  return out;
}

/// Passes calls to the reporter, and logs an epoch a second.
class Logged final : public training::Observer {
 public:
  explicit Logged(training::Observer* next) : next_(next) {}
  void progress(const training::Progress& progress) override {
    if (next_ != nullptr) next_->progress(progress);
  }
  void epoch(const training::EpochRecord& record) override {
    if (next_ != nullptr) next_->epoch(record);
    const SteadyTime now = system_clock().now();
    if (logged_at_ && now - *logged_at_ < kLogPause) return;
    logged_at_ = now;
    const auto metric = main_metric(record.metrics, "");
    log::info("epoch trained", {{"epoch", record.epoch},
                                {"loss", number(record.loss)},
                                {"metric", metric.first},
                                {"value", number(metric.second)},
                                {"seconds", number(record.seconds)}});
  }

 private:
  std::optional<SteadyTime> logged_at_;
  training::Observer* next_;
};

/// One line on standard error, and the result `error` if the agent answers soon.
int fail(const Context& ctx, WorkerApi* api, const Error& error) {
  const int code = exit_code_of(error);
  std::fprintf(stderr, "varda-train: %s\n", error.message().c_str());
  if (api == nullptr || error.code() == Code::kCancelled) return code;
  const Json data = Json::object({{"message", worker::message_for_agent(error.message())},
                                  {"permanent", is_wrong_input(error)}});
  const Status sent = api->deliver(ctx.with_timeout(kErrorReport), "PUT", "/v1/results/error",
                                   Json::object({{"data", data}}));
  if (!sent.ok()) log::warn("error not reported", {{"error", sent.error()}});
  return code;
}

std::string report_name(const Contract& contract) { return "report-" + contract.artifact; }

/// In a bucket, the suffix of the name distinguishes a plain file from an archive.
std::string artifact_name(const Contract& contract, const std::string& file) {
  return file == kModelFile ? contract.artifact + ".onnx" : contract.artifact;
}

/// The report leaves the node, and pictures and names of files must not. Labels and losses stay.
void remove_samples(training::Outcome& outcome) {
  for (training::Worst& one : outcome.worst) {
    one.place.clear();
    one.picture.clear();
  }
}

Result<Finished> train_once(const Context& ctx, const Contract& contract, WorkerParts& parts,
                            training::Observer& observer) {
  const os::Path& directory = contract.job.directory;
  if (auto before = read_finished(parts.fs, contract)) {
    log::info("training was complete before this start", {{"sha256", before->digest}});
    return std::move(*before);
  }
  TRY_VOID(ctx.check());
  TRY(Trained trained, parts.train(ctx, contract.job, observer));
  if (!trained.has_model)
    return Finished{"", "", "", Json::object({{"data", trained.report}}), trained.result};
  TRY(const Delivery model, package(ctx, parts.fs, directory, trained.source));
  remove_samples(trained.outcome);
  TRY(const Delivery report, write_report(parts.fs, contract.job, trained));
  Finished out{model.file, model.digest.hex(), report.digest.hex(),
               final_body(trained.outcome, {.artifact = artifact_name(contract, model.file),
                                            .report = report_name(contract),
                                            .file = model.file == kModelFile ? model.file : "",
                                            .more = trained.report})};
  const Json stored = Json::object({{"task", contract.task},
                                    {"file", out.file},
                                    {"sha256", out.digest},
                                    {"reportSha256", out.report_digest},
                                    {"body", out.body}});
  TRY_VOID(os::write_file_atomically(parts.fs, directory / kResultFile, codec::write_json(stored)));
  return out;
}

Status train_and_report(const Context& ctx, const Contract& contract, WorkerParts& parts,
                        WorkerApi* api, Reporter* reporter) {
  const os::Path& claimed =
      contract.lock_directory.empty() ? contract.job.directory : contract.lock_directory;
  TRY(const auto lock, claim_directory(parts.fs, claimed).context("MODEL_URL"));
  Logged observer(reporter);
  TRY(const Finished finished, train_once(ctx, contract, parts, observer));
  if (api == nullptr) return {};
  reporter->phase("Uploading");
  const os::Path& directory = contract.job.directory;
  // A result of an earlier start may have a name of an earlier release. A comparison has no file.
  const std::string artifact = finished.body.at("data/artifact").as_string();
  if (!finished.file.empty()) {
    TRY_VOID(
        api->upload(ctx, directory / kReportFile, report_name(contract), finished.report_digest));
    TRY_VOID(api->upload(ctx, directory / finished.file, artifact, finished.digest));
  }
  TRY_VOID(api->deliver(ctx, "PUT", "/v1/results/" + finished.result, finished.body));
  log::info("result accepted by the agent",
            {{"artifact", artifact}, {"sha256", finished.digest}});
  return {};
}

}  // namespace

int exit_code_of(const Error& error) {
  if (error.code() == Code::kCancelled && os::stopping_signal() != 0)
    return 128 + os::stopping_signal();
  return is_wrong_input(error) ? 2 : 1;
}

Result<std::unique_ptr<os::FileLock>> claim_directory(os::FileSystem& fs,
                                                      const os::Path& directory) {
  TRY_VOID(fs.make_directories(directory));
  return os::FileLock::acquire(directory / kLockFile);
}

int work(const Context& ctx, const Environment& environment, WorkerParts parts) {
  const Access access = access_of(environment);
  std::unique_ptr<net::HttpClient> http;
  std::unique_ptr<WorkerApi> api;
  std::unique_ptr<Reporter> reporter;
  if (access.socket.empty()) {
    log::warn("no worker API in the environment: nothing is reported",
              {{"variable", "VARDA_WORKER_SOCKET"}});
  } else {
    http = net::make_client({.unix_socket = access.socket.string()});
    parts.api.token_file = access.token_file;
    api = std::make_unique<WorkerApi>(parts.api, *http, parts.fs);
  }
  const auto contract =
      parts.contract ? parts.contract(ctx, environment, api.get()) : read_contract(environment);
  if (!contract.ok()) return fail(ctx, api.get(), contract.error());
  if (api) reporter = std::make_unique<Reporter>(parts.reporter, *api);
  const Status status = train_and_report(ctx, *contract, parts, api.get(), reporter.get());
  if (reporter) reporter->stop();
  return status.ok() ? 0 : fail(ctx, api.get(), status.error());
}

}  // namespace varda::trainapp
