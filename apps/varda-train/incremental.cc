#include "incremental.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/log.h"
#include "codec/digest.h"
#include "package.h"
#include "samples/mixed.h"
#include "training/selection.h"
#include "worker.h"
#include "worker/environment.h"

namespace varda::trainapp {
namespace {

namespace incremental_round {

using codec::Json;
using training::IncrementalTask;
using training::Selection;
using worker::value_of;
using Data = std::shared_ptr<const samples::Dataset>;

constexpr const char* kDeskFile = "desk.json";
constexpr const char* kSelectionDirectory = "selection";
constexpr std::string_view kRoundPrefix = "round-";
constexpr std::chrono::seconds kAssignmentWait{120};

std::string text(std::int64_t number) { return std::to_string(number); }

Json head_of(const IncrementalTask& task) {
  return Json::object({{"round", task.round},
                       {"attempt", task.attempt},
                       {"stage", training::to_string(task.stage)}});
}

Json selected_json(const Selection& selection) {
  return Json::object({{"train", std::uint64_t{selection.train.size()}},
                       {"evaluate", std::uint64_t{selection.evaluate.size()}},
                       {"old", std::uint64_t{selection.old.size()}}});
}

Trained without_model(Json report) {
  Trained out;
  out.report = std::move(report);
  out.has_model = false;
  return out;
}

Trained nothing_new(const IncrementalTask& task) {
  log::info("no new samples", {{"round", task.round}});
  Json report = head_of(task);
  report.set("skipped", "NoNewSamples");
  report.set("message", "earlier rounds have used all samples of the dataset");
  return without_model(std::move(report));
}

/// Removes the files of other rounds. A refused candidate is in the registry if anyone needs it.
Status remove_other_rounds(os::FileSystem& fs, const os::Path& directory, std::int64_t round) {
  TRY(const auto names, fs.list(directory));
  const std::string kept = std::string(kRoundPrefix) + text(round);
  for (const std::string& name : names)
    if (name.starts_with(kRoundPrefix) && name != kept) TRY_VOID(fs.remove_all(directory / name));
  return {};
}

Result<Data> part(const Context& ctx, const Data& data, std::vector<std::size_t> indices) {
  if (indices.empty()) return Data();
  return samples::mix(ctx, {{.data = data, .indices = std::move(indices)}});
}

/// Old samples of the ledger and of the data for replay; null: none.
Result<Data> old_samples(const Context& ctx, const Opened& opened, const Selection& selection) {
  std::vector<samples::Part> parts;
  if (!selection.old.empty()) parts.push_back({opened.data, selection.old});
  if (opened.old && opened.old->size() > 0) {
    std::vector<std::size_t> all(opened.old->size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    parts.push_back({opened.old, std::move(all)});
  }
  if (parts.empty()) return Data();
  return samples::mix(ctx, std::move(parts));
}

Result<std::string> baseline_bytes(os::FileSystem& fs, const IncrementalJob& incremental,
                                   const ModelSource& base) {
  if (!incremental.baseline) return base.bytes;
  TRY(ModelSource source, read_model(fs, *incremental.baseline));
  return std::move(source.bytes);
}

Result<Json> comparison_of(const Context& ctx, const IncrementalJob& incremental,
                           const Opened& opened, const Selection& selection, Data newest,
                           std::string baseline, std::string candidate) {
  TRY(training::Comparison comparison,
      training::compare(ctx, *opened.engine,
                        {.base = std::move(baseline),
                         .candidate = std::move(candidate),
                         .slices = {{"frozen", opened.evaluation}, {"newest", std::move(newest)}},
                         .settings = incremental.job.settings}));
  comparison.round = incremental.task.round;
  comparison.selected_train = selection.train.size();
  comparison.selected_evaluate = selection.evaluate.size();
  return training::to_json(comparison);
}

Result<std::string> read_result_model(os::FileSystem& fs, const os::Path& path) {
  TRY(const ModelSource source, read_model(fs, path));
  return source.bytes;
}

/// The lines of the samples in a file of their own.
Status write_list(os::FileSystem& fs, const os::Path& path, const samples::Dataset& data,
                  std::span<const std::size_t> indices) {
  std::string out = data.header();
  if (!out.empty()) out += "\n";
  for (const std::size_t index : indices) {
    TRY(const std::string line, data.line(index));
    out += line + "\n";
  }
  return os::write_file_atomically(fs, path, out);
}

std::string extension_of(const DataSource& source) {
  std::string format = source.format;
  if (format.empty()) {
    const std::string extension = source.path.extension().string();
    if (extension == ".csv" || extension == ".tsv") format = extension.substr(1);
  }
  return format == "csv" || format == "tsv" ? format : "txt";
}

/// The assignment of the variable, else that of the agent.
Result<Json> assignment_of(const Context& ctx, const Environment& environment, WorkerApi* api) {
  TRY(Json given, worker::object_of(environment, "INCREMENTAL"));
  if (given.contains("round")) return given;
  if (api == nullptr) return Error(Code::kInvalid, "the variable INCREMENTAL has no round");
  const Context limited = ctx.with_timeout(kAssignmentWait);
  std::chrono::milliseconds pause{200};
  for (;;) {
    auto answer = api->fetch(limited, "GET", "/v1/assignment", std::nullopt);
    if (answer.ok()) return (*answer)["assignment"];
    if (answer.error().code() != Code::kUnavailable) return std::move(answer).error();
    if (!limited.sleep_for(pause).ok()) {
      TRY_VOID(ctx.check());
      return std::move(answer).error().context("assignment");
    }
    pause = std::min(2 * pause, std::chrono::milliseconds(5000));
  }
}

std::string artifact_of(const Json& training, const IncrementalTask& task) {
  const Json& version = training["version"];
  if (version.is_integer()) return "model-" + text(version.as_integer());
  if (version.is_string() && !version.as_string().empty()) return "model-" + version.as_string();
  return "model-round-" + text(task.round) + "-" + text(task.attempt);
}

/// Rounds of a desk.
struct Desk {
  std::int64_t round = 1;
  bool finished = false;  // the round has a result
  training::RoundSet consumed, refused;
};

Result<Desk> read_desk(os::FileSystem& fs, const os::Path& directory) {
  Desk out;
  TRY(const auto info, fs.stat(directory / kDeskFile));
  if (!info) return out;
  TRY(const std::string bytes, os::read_file(fs, directory / kDeskFile, 1 << 20));
  TRY(const Json json, codec::parse_json(bytes).context(kDeskFile));
  TRY(const IncrementalTask task, training::parse_incremental_task(json).context(kDeskFile));
  out.round = task.round;
  out.finished = json["finished"].as_bool();
  out.consumed = task.consumed;
  out.refused = task.refused;
  return out;
}

Status write_desk(os::FileSystem& fs, const os::Path& directory, const Desk& desk) {
  const Json json = Json::object({{"round", desk.round},
                                  {"finished", desk.finished},
                                  {"consumed", training::to_json(desk.consumed)},
                                  {"refused", training::to_json(desk.refused)}});
  return os::write_file_atomically(fs, directory / kDeskFile, codec::write_json(json) + "\n");
}

}  // namespace incremental_round

}  // namespace

os::Path round_directory(const os::Path& directory, std::int64_t round) {
  return directory / (std::string(incremental_round::kRoundPrefix) + std::to_string(round));
}

Result<IncrementalJob> read_incremental_job(const Environment& environment,
                                            const codec::Json& assignment) {
  using namespace incremental_round;
  IncrementalJob out;
  TRY(const Contract contract, read_contract(environment));
  out.job = contract.job;
  TRY(out.task, training::parse_incremental_task(assignment).context("INCREMENTAL"));
  out.directory = out.job.directory;
  out.job.directory = round_directory(out.directory, out.task.round);
  if (const std::string path = value_of(environment, "BASELINE_MODEL_URL"); !path.empty())
    out.baseline = path;
  if (const std::string path = value_of(environment, "CANDIDATE_MODEL_URL"); !path.empty())
    out.candidate = path;
  if (const std::string path = value_of(environment, "REPLAY_DATASET_URL"); !path.empty())
    out.job.old = DataSource{path, value_of(environment, "REPLAY_DATASET_FORMAT")};
  return out;
}

Result<Trained> train_round(const Context& ctx, const IncrementalJob& incremental,
                            infer::Engines& engines, os::FileSystem& fs,
                            training::Observer& observer) {
  using namespace incremental_round;
  const Job& job = incremental.job;
  const IncrementalTask& task = incremental.task;
  Trained out;
  TRY(out.source, read_model(fs, job.model));
  TRY(const Opened opened, open(ctx, job, out.source, engines));
  out.engine = opened.engine->name() + " " + opened.engine->library_version();
  TRY(const Selection selection,
      training::select(fs, incremental.directory, task, training::ids_of(*opened.data)));
  if (selection.train.empty()) return nothing_new(task);
  log::info("samples selected", {{"round", task.round},
                                 {"train", selection.train.size()},
                                 {"evaluate", selection.evaluate.size()},
                                 {"old", selection.old.size()}});
  TRY_VOID(remove_other_rounds(fs, incremental.directory, task.round));
  TRY(const Data fresh, part(ctx, opened.data, selection.train));
  TRY(const Data newest, part(ctx, opened.data, selection.evaluate));
  TRY(const Data old, old_samples(ctx, opened, selection));
  // An early end by the frozen set would make the candidate fit the set that judges it.
  const bool holds_out = job.settings.early_stopping.has_value();
  TRY(out.outcome, training::run(ctx, *opened.engine, fs,
                                 {.model = out.source.bytes,
                                  .train = fresh,
                                  .evaluation = holds_out           ? Data()
                                                : opened.evaluation ? opened.evaluation
                                                                    : newest,
                                  .old = old,
                                  .hold_out = holds_out ? job.hold_out : 0,
                                  .classes_min = 1,
                                  .settings = job.settings,
                                  .directory = job.directory,
                                  .checkpoint_every = job.checkpoint_every},
                                 observer));
  TRY_VOID(write_beside(fs, job.directory, out.source, out.outcome.classes));
  TRY(out.digest, digest_of_file(fs, out.outcome.model));
  TRY(std::string candidate, read_result_model(fs, out.outcome.model));
  TRY(std::string baseline, baseline_bytes(fs, incremental, out.source));
  TRY(Json comparison, comparison_of(ctx, incremental, opened, selection, newest,
                                     std::move(baseline), std::move(candidate)));
  TRY_VOID(os::write_file_atomically(fs, job.directory / "comparison.json",
                                     codec::write_json_pretty(comparison) + "\n"));
  out.report = head_of(task);
  out.report.set("comparison", std::move(comparison));
  out.report.set("replayed", out.outcome.replayed);
  return out;
}

Result<Trained> compare_round(const Context& ctx, const IncrementalJob& incremental,
                              infer::Engines& engines, os::FileSystem& fs) {
  using namespace incremental_round;
  if (!incremental.candidate)
    return Error(Code::kInvalid,
                 "the variable CANDIDATE_MODEL_URL is missing: the model to "
                 "compare");
  TRY(ModelSource candidate, read_model(fs, *incremental.candidate));
  TRY(const ModelSource base, read_model(fs, incremental.job.model));
  // The candidate may have more classes than the base.
  TRY(const Opened opened, open(ctx, incremental.job, candidate, engines));
  Selection selection;
  if (auto found = training::recall(fs, incremental.directory, incremental.task,
                                    training::ids_of(*opened.data));
      found.ok())
    selection = std::move(*found);
  else if (found.error().code() != Code::kNotFound)
    return std::move(found).error();
  TRY(Data newest, part(ctx, opened.data, selection.evaluate));
  TRY(std::string baseline, baseline_bytes(fs, incremental, base));
  TRY(Json comparison, comparison_of(ctx, incremental, opened, selection, std::move(newest),
                                     std::move(baseline), std::move(candidate.bytes)));
  Json report = head_of(incremental.task);
  report.set("comparison", std::move(comparison));
  return without_model(std::move(report));
}

Result<Trained> write_lists(const Context& ctx, const IncrementalJob& incremental,
                            os::FileSystem& fs) {
  using namespace incremental_round;
  const IncrementalTask& task = incremental.task;
  const bool trains = task.stage == IncrementalTask::Stage::kTrain;
  TRY(const Opened opened, open_places(ctx, incremental.job));
  const auto ids = training::ids_of(*opened.data);
  TRY(const Selection selection, trains ? training::select(fs, incremental.directory, task, ids)
                                        : training::recall(fs, incremental.directory, task, ids));
  const os::Path directory = incremental.directory / kSelectionDirectory;
  const std::string extension = extension_of(incremental.job.data);
  TRY_VOID(fs.make_directories(directory));
  if (trains)
    TRY_VOID(write_list(fs, directory / ("train." + extension), *opened.data, selection.train));
  TRY_VOID(write_list(fs, directory / ("test." + extension), *opened.data, selection.evaluate));
  if (trains && selection.train.empty()) return nothing_new(task);
  Json report = head_of(task);
  report.set("selected", selected_json(selection));
  return without_model(std::move(report));
}

std::string summary(const codec::Json& report) {
  if (report.contains("skipped")) return report["message"].as_string() + "\n";
  std::string out;
  const codec::Json& comparison = report["comparison"];
  for (const codec::Json& slice : comparison["slices"].as_array()) {
    const std::int64_t samples = slice["samples"].as_integer();
    if (samples == 0) continue;
    out += slice["name"].as_string() + ": " + std::to_string(slice["baseRight"].as_integer()) +
           " -> " + std::to_string(slice["candidateRight"].as_integer()) + " of " +
           std::to_string(samples) + " right\n";
  }
  return out;
}

int work_incremental(const Context& ctx, const Environment& environment, RoundAction action,
                     IncrementalParts parts) {
  using namespace incremental_round;
  // The contract comes first; the training reads it from here.
  IncrementalJob incremental;
  WorkerApi* agent = nullptr;
  const auto contract = [&](const Context& inner, const Environment& variables,
                            WorkerApi* api) -> Result<Contract> {
    agent = api;
    TRY(const Json assignment, assignment_of(inner, variables, api));
    TRY(incremental, read_incremental_job(variables, assignment));
    if (action == RoundAction::kTrain && incremental.task.stage == IncrementalTask::Stage::kEval)
      action = RoundAction::kCompare;
    TRY(Contract out, read_contract(variables));
    TRY(const Json training, worker::object_of(variables, "TRAINING"));
    out.job = incremental.job;
    out.artifact = artifact_of(training, incremental.task);
    out.task = codec::Sha256::of(out.task + codec::write_json(training::to_json(incremental.task)) +
                                 value_of(variables, "BASELINE_MODEL_URL") + "\n" +
                                 value_of(variables, "REPLAY_DATASET_URL"))
                   .hex();
    out.lock_directory = incremental.directory;
    return out;
  };
  const auto train = [&](const Context& inner, const Job&,
                         training::Observer& observer) -> Result<Trained> {
    if (action == RoundAction::kTrain)
      return train_round(inner, incremental, parts.engines, parts.fs, observer);
    if (action == RoundAction::kCompare)
      return compare_round(inner, incremental, parts.engines, parts.fs);
    TRY(Trained lists, write_lists(inner, incremental, parts.fs));
    // The user's program reports the result of the round.
    lists.result = lists.report.contains("skipped") ? "final" : "selection";
    return lists;
  };
  return work(ctx, environment,
              {.train = train,
               .contract = contract,
               .fs = parts.fs,
               .api = parts.api,
               .reporter = parts.reporter});
}

Result<Trained> train_round_here(const Context& ctx, DeskRound desk, infer::Engines& engines,
                                 os::FileSystem& fs, training::Observer& observer) {
  using namespace incremental_round;
  IncrementalJob& incremental = desk.incremental;
  TRY(Desk state, read_desk(fs, incremental.directory));
  if (state.finished) {
    if (desk.last == DeskRound::Last::kConsumed) state.consumed.add(state.round);
    if (desk.last == DeskRound::Last::kRefused) state.refused.add(state.round);
    ++state.round;
    state.finished = false;
    TRY_VOID(write_desk(fs, incremental.directory, state));
  }
  incremental.task.round = state.round;
  incremental.task.consumed = state.consumed;
  incremental.task.refused = state.refused;
  incremental.job.directory = round_directory(incremental.directory, state.round);
  TRY(Trained out, train_round(ctx, incremental, engines, fs, observer));
  if (!out.has_model) return out;
  Job shown = incremental.job;
  TRY_VOID(write_report(fs, shown, out));
  state.finished = true;
  TRY_VOID(write_desk(fs, incremental.directory, state));
  return out;
}

}  // namespace varda::trainapp
