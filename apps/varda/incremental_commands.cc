// il: incremental learning from the command line.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "api/sedna/incremental_learning_job.h"
#include "base/clock.h"
#include "cli/printer.h"
#include "client_session.h"
#include "command.h"
#include "incremental/round_machine.h"
#include "meta/object.h"

namespace varda::app {
namespace {

using api::IncrementalLearningJob;
using codec::Json;

constexpr std::int64_t kMinimumSamples = 1;  // default of trainSpec.trigger.minimumSamples

struct IncrementalFlags {
  SessionFlags session;
  std::string name;
};

/// A value that no earlier request had.
std::string new_request() {
  const auto since_epoch = system_clock().wall().time_since_epoch();
  return std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(since_epoch).count());
}

Result<IncrementalLearningJob> read_job(const Context& ctx, const cli::Session& session,
                                        const std::string& name) {
  const meta::ObjectKey key{session.ns, name};
  TRY(const Json object, session.client.get(ctx, IncrementalLearningJob::resource(), key));
  return IncrementalLearningJob::from_json(object);
}

Status annotate(const Context& ctx, const cli::Session& session, const std::string& name,
                std::string_view annotation) {
  const Json change = Json::object(
      {{"metadata", Json::object({{"annotations",
                                   Json::object({{std::string(annotation), new_request()}})}})}});
  TRY_VOID(session.client.patch(ctx, IncrementalLearningJob::resource(), {session.ns, name},
                                kube::PatchType::kMerge, change));
  return {};
}

Status request_training(const Context& ctx, cli::Session& session, const std::string& name) {
  TRY(const IncrementalLearningJob job, read_job(ctx, session, name));
  if (job.spec.suspend)
    return Error(Code::kInvalid, "incrementallearningjob " + name +
                                     " is suspended: set spec.suspend to false first");
  // The operator would refuse the request, and show that in the status only.
  const bool needs_samples =
      job.spec.train_spec.trigger["minimumSamples"].as_integer(kMinimumSamples) > 0;
  if (needs_samples && job.status.samples.fresh == 0 && job.status.round > 0)
    return Error(Code::kInvalid, "incrementallearningjob " + name +
                                     " has nothing to train on: earlier rounds have used all " +
                                     std::to_string(job.status.samples.total) +
                                     " samples of Dataset " + job.spec.dataset.name);
  TRY_VOID(annotate(ctx, session, name, IncrementalLearningJob::kTrainAnnotation));
  session.out("training requested; `varda il history " + name + "` shows the rounds\n");
  return {};
}

Status request_rollback(const Context& ctx, cli::Session& session, const std::string& name) {
  TRY(const IncrementalLearningJob job, read_job(ctx, session, name));
  TRY(const incremental::State state,
      incremental::parse_state(job.status.machine).context("status.machine"));
  const bool candidate = incremental::candidate_serves(state);
  if (state.previous.empty() && !candidate)
    return Error(Code::kInvalid,
                 "version " + job.status.version + " serves, and there is no version before it");
  TRY_VOID(annotate(ctx, session, name, IncrementalLearningJob::kRollbackAnnotation));
  session.out("rollback requested; version " +
              cli::harmless(candidate ? state.candidate : job.status.version) +
              " is to leave the service\n");
  return {};
}

Status show_history(const Context& ctx, cli::Session& session, const std::string& name) {
  TRY(const IncrementalLearningJob job, read_job(ctx, session, name));
  const api::IncrementalLearningJobStatus& status = job.status;
  std::vector<std::vector<std::string>> rows{
      {"ROUND", "OUTCOME", "VERSION", "SAMPLES", "GAIN", "ENDED", "REASON", "MESSAGE"}};
  for (const api::IncrementalRound& round : status.rounds) {
    rows.push_back({std::to_string(round.round), round.outcome, cli::harmless(round.version),
                    std::to_string(round.samples), round.gain, round.end_time,
                    cli::harmless(round.reason), cli::harmless(round.message)});
  }
  if (status.rounds.empty()) {
    session.out("no round has ended\n");
  } else {
    session.out(cli::align(rows));
  }
  session.out("\nversion " + (status.version.empty() ? std::string("-") : status.version) +
              " serves; round " + std::to_string(status.round) + ": " + status.stage + " " +
              status.state + "\n");
  return {};
}

using Work = Status (*)(const Context&, cli::Session&, const std::string&);

void add_one(Program program, CLI::App& parent, const char* name, const char* what, Work work) {
  const auto flags = std::make_shared<IncrementalFlags>();
  Globals& globals = program.globals;
  Run& chosen = program.chosen;
  CLI::App* command = parent.add_subcommand(name, what);
  command->add_option("name", flags->name, "name of the IncrementalLearningJob")->required();
  command->add_option("-n,--namespace", flags->session.ns, "namespace; default: the kubeconfig's");
  command->add_option("--kubeconfig", globals.kubeconfig, kKubeconfigHelp);
  command->callback([&chosen, &globals, flags, work] {
    chosen = [&globals, flags, work](const Context& ctx) {
      return with_session(ctx, globals, flags->session,
                          [&](const Context& inner, cli::Session& session) {
                            return work(inner, session, flags->name);
                          });
    };
  });
}

}  // namespace

void add_learning_commands(Program program) {
  CLI::App* il =
      program.parser.add_subcommand("il", "start, undo and list rounds of incremental learning");
  il->require_subcommand(1);
  add_one(program, *il, "train", "start a round now, whatever the trigger", request_training);
  add_one(program, *il, "rollback", "bring the version before back into service", request_rollback);
  add_one(program, *il, "history", "list the last rounds with their verdicts", show_history);
}

}  // namespace varda::app
