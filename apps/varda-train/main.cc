// varda-train: trains an ONNX model on a desk, or in a pod with --worker.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/context.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/text.h"
#include "codec/yaml.h"
#include "console.h"
#include "federated.h"
#include "flags.h"
#include "incremental.h"
#include "infer/engine.h"
#include "job.h"
#include "net/url.h"
#include "os/file_system.h"
#include "os/process.h"
#include "package.h"
#include "summary.h"
#include "worker.h"

namespace varda::trainapp {
namespace {

std::vector<std::filesystem::path> engine_directories(const app::TrainFlags& flags) {
  std::vector<std::filesystem::path> out(flags.engine_path.begin(), flags.engine_path.end());
  out.push_back(os::self_path().parent_path().parent_path() / "lib" / "varda");
  return out;
}

Result<Job> job_of(os::FileSystem& fs, const app::TrainFlags& flags) {
  Job job{.model = flags.model,
          .data = {flags.data, flags.format},
          .hold_out = flags.hold_out.value_or(kHoldOut),
          .directory = flags.out,
          .checkpoint_every = *parse_duration(flags.checkpoint_every)};
  if (!flags.evaluation.empty()) job.evaluation = DataSource{flags.evaluation, flags.format};
  if (!flags.old_data.empty()) job.old = DataSource{flags.old_data, flags.format};
  TRY(const codec::Json settings, settings_of(fs, flags));
  TRY(job.settings, training::parse_settings(settings));
  return job;
}

Status train_here(const Context& ctx, const app::TrainFlags& flags) {
  os::FileSystem& fs = os::real_file_system();
  TRY(const Job job, job_of(fs, flags));
  TRY(const auto lock, claim_directory(fs, job.directory).context("--out"));
  infer::Engines engines(engine_directories(flags));
  const std::string metric = metric_of(job.settings);
  Console console(
      {.terminal = ::isatty(STDERR_FILENO) != 0, .metric = metric, .epochs = job.settings.epochs},
      system_clock());
  auto trained = train(ctx, job, engines, fs, console);
  console.clear();
  TRY_VOID(trained);
  TRY_VOID(write_report(fs, job, *trained));
  TRY_VOID(fs.remove(job.directory / kLockFile));
  std::fputs(summary(job, *trained).c_str(), stdout);
  return {};
}

/// --incremental, --select or --compare on a desk.
Status learn_here(const Context& ctx, const app::TrainFlags& flags) {
  os::FileSystem& fs = os::real_file_system();
  DeskRound desk;
  IncrementalJob& incremental = desk.incremental;
  TRY(incremental.job, job_of(fs, flags));
  incremental.directory = flags.out;
  incremental.task.seed = incremental.job.settings.seed;
  incremental.task.train_probability = flags.train_share;
  if (!flags.candidate.empty()) incremental.candidate = flags.candidate;
  if (flags.refuse) desk.last = DeskRound::Last::kRefused;
  if (flags.give_back) desk.last = DeskRound::Last::kFailed;
  TRY(const auto lock, claim_directory(fs, incremental.directory).context("--dir"));
  infer::Engines engines(engine_directories(flags));
  Console console({.terminal = ::isatty(STDERR_FILENO) != 0,
                   .metric = metric_of(incremental.job.settings),
                   .epochs = incremental.job.settings.epochs},
                  system_clock());
  auto done = flags.compare  ? compare_round(ctx, incremental, engines, fs)
              : flags.select ? write_lists(ctx, incremental, fs)
                             : train_round_here(ctx, desk, engines, fs, console);
  console.clear();
  TRY_VOID(done);
  TRY_VOID(fs.remove(incremental.directory / kLockFile));
  if (done->has_model)
    std::printf("%s\n", done->outcome.model.string().c_str());
  else if (!done->report.contains("skipped"))
    std::printf("%s\n", codec::write_json_pretty(done->report).c_str());
  std::fputs(summary(done->report).c_str(), stdout);
  return {};
}

int run_here(const Context& ctx, const app::TrainFlags& flags) {
  const bool incremental = flags.incremental || flags.select || flags.compare;
  const Status status = incremental ? learn_here(ctx, flags) : train_here(ctx, flags);
  if (status.ok()) return 0;
  const int code = exit_code_of(status.error());
  if (code > 128) {
    std::fprintf(stderr, "varda-train: stopped; the same command continues this run\n");
  } else {
    std::fprintf(stderr, "varda-train: %s\n", status.error().message().c_str());
  }
  return code;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? name : "client";
}

/// The value of a flag that is YAML; null if absent.
Result<codec::Json> yaml_flag(const char* name, const std::string& text) {
  if (text.empty()) return codec::Json();
  return codec::parse_yaml(text).context(name);
}

Result<FederatedClient> federated_client(os::FileSystem& fs, const app::TrainFlags& flags) {
  FederatedClient out;
  out.worker.job = {.model = flags.model,
                    .data = {flags.data, flags.format},
                    .hold_out = flags.hold_out.value_or(kHoldOut),
                    .directory = flags.out,
                    .checkpoint_every = *parse_duration(flags.checkpoint_every)};
  if (!flags.evaluation.empty())
    out.worker.job.evaluation = DataSource{flags.evaluation, flags.format};
  TRY(out.worker.trainer, settings_of(fs, flags));
  codec::Json client = codec::Json::object({{"bytesPerSecond", flags.bandwidth},
                                            {"nice", flags.nice},
                                            {"threads", flags.threads.value_or(0)}});
  TRY(codec::Json when, yaml_flag("--when", flags.when));
  client.set("when", std::move(when));
  TRY(codec::Json privacy, yaml_flag("--privacy", flags.privacy));
  client.set("privacy", std::move(privacy));
  TRY(out.worker.client, parse_client_settings(client));
  TRY(const codec::Json secured, yaml_flag("--secure", flags.secure));
  TRY(auto secure,
      secure_identity(fs, secured, secured["signingKeyFile"].as_string()).context("--secure"));
  out.worker.directory = flags.out;
  TRY(const net::Url url, net::Url::parse(flags.federated).context("--federated"));
  if (url.target != "/")
    return Error(Code::kInvalid, "--federated: the URL of an aggregator has no path");
  out.protocol = {.url = url.origin(),
                  .client = flags.client_name.empty() ? host_name() : flags.client_name,
                  .directory = os::Path(flags.out) / "client",
                  .secure = std::move(secure),
                  .when = out.worker.client.when,
                  .bytes_per_second = flags.bandwidth,
                  .give_up_after = *parse_duration(flags.give_up_after)};
  return out;
}

int run_federated_here(const Context& ctx, const app::TrainFlags& flags) {
  os::FileSystem& fs = os::real_file_system();
  auto client = federated_client(fs, flags);
  if (!client.ok()) {
    std::fprintf(stderr, "varda-train: %s\n", client.error().message().c_str());
    return exit_code_of(client.error());
  }
  infer::Engines engines(engine_directories(flags));
  return train_federated(ctx, std::move(*client), engines, fs);
}

int run(int argc, char** argv) {
  const Parsed parsed = parse_flags(argc, argv);
  if (!parsed.flags) return parsed.exit_code;
  const app::TrainFlags& flags = *parsed.flags;
  log::configure(flags.log_format == "json" ? log::Format::kJson : log::Format::kText,
                 log::parse_level(flags.log_level).value_or(log::Level::kInfo));
  const Context ctx(os::stop_on_signals());
  if (!flags.worker)
    return flags.is_federated ? run_federated_here(ctx, flags) : run_here(ctx, flags);
  infer::Engines engines(engine_directories(flags));
  os::FileSystem& fs = os::real_file_system();
  const Environment environment = worker::environment_of_process();
  if (flags.is_federated)
    return work_federated(
        ctx, environment,
        {.engines = engines, .fs = fs, .reporter = {.instance = system_rng().uuid()}});
  if (flags.incremental || flags.select || flags.compare)
    return work_incremental(
        ctx, environment,
        flags.select    ? RoundAction::kSelect
        : flags.compare ? RoundAction::kCompare
                        : RoundAction::kTrain,
        {.engines = engines, .fs = fs, .reporter = {.instance = system_rng().uuid()}});
  return work(ctx, environment,
              {.train =
                   [&](const Context& inner, const Job& job, training::Observer& observer) {
                     return train(inner, job, engines, fs, observer);
                   },
               .fs = fs,
               .reporter = {.instance = system_rng().uuid()}});
}

}  // namespace
}  // namespace varda::trainapp

int main(int argc, char** argv) {
  try {
    return varda::trainapp::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "varda-train: %s\n", e.what());
    return 1;
  }
}
