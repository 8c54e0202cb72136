#include <algorithm>
#include <chrono>
#include <tuple>
#include <utility>

#include "codec/text.h"
#include "controllers/runs/runs.h"
#include "controllers/trainingmodel/plan.h"
#include "hosting/conditions.h"
#include "hosting/pod_problem.h"

namespace varda::controllers::trainingmodel {

namespace {

using api::TrainingModel;
using api::TrainingModelStatus;
using hosting::kFalse;
using hosting::kTrue;
using hosting::kUnknown;
using hosting::no;
using hosting::Problem;
using runs::attempts_text;
using runs::main_metric;
using runs::ReportedArtifact;
using runs::ReportedResult;
using std::chrono::seconds;

std::string text_of(std::int64_t number) { return std::to_string(number); }

bool same_figures(const api::TrainingProgress& a, const api::TrainingProgress& b) {
  return std::tie(a.epoch, a.epochs, a.step, a.steps, a.loss, a.samples_per_second, a.remaining) ==
         std::tie(b.epoch, b.epochs, b.step, b.steps, b.loss, b.samples_per_second, b.remaining);
}

std::string progress_text(const api::TrainingProgress& progress) {
  std::string out;
  if (progress.epochs > 0)
    out = "epoch " + text_of(progress.epoch) + "/" + text_of(progress.epochs);
  if (progress.steps > 0) {
    const std::int64_t share = std::min(progress.step, progress.steps) * 100 / progress.steps;
    out += (out.empty() ? "" : ", ") + text_of(share) + " %";
  }
  return out;
}

class Observer {
 public:
  Observer(const TrainingModel& training, const TrainingPlan& plan, const TrainingWorld& world,
           const hosting::Options& options, WallTime now)
      : training_(training),
        plan_(plan),
        world_(world),
        options_(options),
        wall_(now),
        now_(meta::format_time(now)),
        conditions_(out_.status.conditions, out_.status.observed_generation, out_.recheck_in, now) {
  }

  TrainingObservation make() {
    out_.status = training_.status;
    status().observed_generation =
        std::max(training_.metadata.generation, status().observed_generation);
    if (status().ended()) {
      recheck_ended_pods();
      return std::move(out_);
    }
    agent_ = plan_.node.empty() ? nullptr : world_.edge_node(plan_.node);
    // Kubernetes watches the pods of a Job, also while no agent of the run is connected.
    lost_ = plan_.node.empty() || plan_.is_job
                ? std::nullopt
                : hosting::out_of_reach(plan_.node, hosting::find_node(world_.nodes, plan_.node),
                                        agent_.get());
    report_ = read_report(agent_.get(), training_.metadata.ns + "/" + plan_.pod_name,
                          training_.metadata.uid);
    status().node = plan_.node.empty() ? status().node : plan_.node;
    status().base = plan_.base ? plan_.base : pinned_base(training_);
    status().scripts = plan_.scripts ? plan_.scripts : pinned_scripts(training_);
    if (plan_.data) status().data = plan_.data;
    if (plan_.evaluation_data) status().evaluation_data = plan_.evaluation_data;
    if (!plan_.fingerprint.empty() && status().dataset_fingerprint.empty())
      status().dataset_fingerprint = plan_.fingerprint;
    if (plan_.pod != nullptr) {
      if (status().start_time.empty()) status().start_time = now_;
      runs::count_attempts(*plan_.pod, {status().pod, status().pod_uid, status().attempts,
                                        status().failed, status().earlier});
    }
    take_figures();
    decide();
    status().summary.progress = progress_text(status().progress);
    status().summary.metric = main_metric(status().metrics);
    return std::move(out_);
  }

 private:
  TrainingModelStatus& status() { return out_.status; }

  void set(std::string type, hosting::Verdict verdict) {
    conditions_.set(std::move(type), std::move(verdict));
  }
  void erase(std::string_view type) { conditions_.erase(type); }
  void recheck(Duration delay) { conditions_.recheck(delay); }

  void recheck_ended_pods() {
    const auto end = meta::parse_time(status().completion_time);
    if (status().phase != TrainingModelStatus::kComplete || !end.ok() ||
        wall_ >= *end + runs::kEndPatience)
      return;
    recheck(std::chrono::duration_cast<Duration>(*end + runs::kEndPatience - wall_));
  }

  /// Progress and history. Each report of a new step would be a write.
  void take_figures() {
    api::TrainingProgress& before = status().progress;
    if (report_.result) {
      status().history = report_.history;
      status().metrics = report_.result->metrics;
      if (!report_.result->fingerprint.empty())
        status().dataset_fingerprint = report_.result->fingerprint;
    }
    if (same_figures(before, report_.progress) || plan_.pod_name.empty()) return;
    const api::TrainingProgress none;
    if (same_figures(report_.progress, none)) return;  // the worker reported nothing yet
    const auto last = meta::parse_time(before.update_time);
    const bool early = last.ok() && wall_ >= *last && wall_ < *last + kFiguresPeriod;
    if (early && !report_.result && report_.phase == status().phase) {
      recheck(std::chrono::duration_cast<Duration>(*last + kFiguresPeriod - wall_));
      return;
    }
    before = report_.progress;
    before.update_time = now_;
    if (report_.result) return;
    status().history = report_.history;
    if (report_.history.empty()) return;
    status().metrics.clear();
    for (const auto& [name, value] : report_.history.back().metrics)
      status().metrics.push_back({name, value, {}});
  }

  void decide() {
    if (report_.result) return take_result(*report_.result);
    if (auto failure = find_failure()) return fail(std::move(*failure));
    if (training_.spec.suspend) return suspend();
    if (const meta::Condition* suspended = meta::find_condition(status().conditions, "Suspended");
        suspended != nullptr && suspended->status == kTrue)
      set("Suspended", no("Resumed", "the run continues"));
    run();
  }

  void suspend() {
    status().phase = TrainingModelStatus::kSuspended;
    status().start_time.clear();
    erase("ResultReceived");
    set("Suspended", {kTrue, "Suspended",
                      plan_.is_job ? "spec.suspend is true; the run then starts again: its "
                                     "checkpoint goes with the pod of the Job"
                                   : "spec.suspend is true; the checkpoint stays on the node"});
    set("Running", no("Suspended", plan_.pod == nullptr ? "the run is suspended"
                                                        : "the run is suspended; the pod ends"));
  }

  void fail(Problem failure) {
    status().phase = TrainingModelStatus::kFailed;
    status().completion_time = now_;
    erase("ResultReceived");
    set("Running", no(failure.reason, failure.message));
    set("Failed", {kTrue, std::move(failure.reason), std::move(failure.message)});
  }

  // ---- the result

  void take_result(const ReportedResult& result) {
    status().phase = TrainingModelStatus::kUploading;
    if (result.artifact.empty())
      return fail({"ResultInvalid",
                   "results/final has no data.artifact: the name of the file that "
                   "the trainer put to /v1/artifacts"});
    if (!result.file) return await_file(result);
    erase("ResultReceived");
    const ReportedArtifact& file = *result.file;
    if (file.state == "Failed")
      return fail({"UploadFailed", "the node cannot upload the file " + result.artifact +
                                       (file.reason.empty() ? "" : ": " + file.reason)});
    if (file.state != "Uploaded" || file.sha256.empty() ||
        (result.report && result.report->is_on_its_way()))
      return set("Running", no("Uploading", uploading_text(result)));
    status().produced = runs::produced_of(result, training_.spec.output.version,
                                          {options_.registry_url, training_.spec.output.url});
    const std::string model =
        "version " + status().produced->version + " of Model " + training_.spec.model_name;
    if (world_.output == nullptr || !runs::has_result(hosting::any_model(world_.output),
                                                      *status().produced, status().metrics)) {
      out_.output = output_of(result);
      return set("Running", no("WritingModel", "the operator writes " + model));
    }
    const std::string metric = main_metric(status().metrics);
    status().phase = TrainingModelStatus::kComplete;
    status().completion_time = now_;
    const std::string message = model + (metric.empty() ? "" : ": " + metric);
    set("Running", no("Complete", message));
    set("Complete", {kTrue, "Trained", message});
    recheck(runs::kEndPatience);
  }

  // The node reports files and results together. A file that is missing for long never existed.
  void await_file(const ReportedResult& result) {
    const std::string what = "the result names the file " + result.artifact +
                             ", but the node has no such file of /v1/artifacts";
    if (await("ResultReceived", "AwaitingFile", what)) return fail({"ResultInvalid", what});
    set("Running", no("AwaitingFile", what));
  }

  /// Keeps the condition False. True once it is False for kResultPatience.
  bool await(const char* type, const char* reason, const std::string& message) {
    if (lost_ || report_.cut) {
      erase(type);
      return false;
    }
    return conditions_.await(type, reason, message, kResultPatience);
  }

  std::string uploading_text(const ReportedResult& result) const {
    const ReportedArtifact& file = *result.file;
    std::string text = "node " + plan_.node + " sends the file " + result.artifact + ": " +
                       text_of(file.sent) + " of " + text_of(file.bytes) + " bytes";
    if (lost_) return text + "; " + lost_->message;
    return file.reason.empty() ? text : text + "; " + file.reason;
  }

  Json output_of(const ReportedResult& result) const {
    const api::TrainingModelSpec& spec = training_.spec;
    runs::ModelOfRun model{
        .name = spec.model_name,
        .ns = training_.metadata.ns,
        .group = api::Model::resource().group,
        .source_job = TrainingModel::resource().kind + "/" + training_.metadata.name,
        .format = result.format,
        .produced = *out_.status.produced,
        .base = out_.status.base,
        .metadata = {}};
    if (spec.output.credentials) model.credentials = spec.output.credentials->secret_name;
    const auto add = [&](const char* name, std::string value) {
      model.metadata.emplace_back(name, std::move(value));
    };
    if (spec.dataset) add("dataset", spec.dataset->name);
    add("datasetFingerprint", out_.status.dataset_fingerprint);
    if (result.samples > 0) add("samples", text_of(result.samples));
    for (const char* name : {"seed", "epochs"}) {
      if (spec.trainer[name].is_integer()) add(name, text_of(spec.trainer[name].as_integer()));
    }
    return runs::to_object(model);
  }

  // ---- failures that end the run

  std::string last_error() const {
    if (report_.error && !report_.error->message.empty()) return report_.error->message;
    if (plan_.pod == nullptr) return "";
    const auto problem = hosting::pod_problem(*plan_.pod);
    return problem ? problem->message : "";
  }

  // An exit code of varda-train means that another attempt fails too.
  bool ended_for_good() const {
    return training_.spec.built_in() && plan_.pod != nullptr && runs::ended_for_good(*plan_.pod);
  }

  std::optional<Problem> find_failure() {
    if (lost_) return {};
    if (plan_.is_job && world_.job != nullptr) {
      if (auto failure = job_failure(*world_.job)) {
        const std::string last = last_error();
        if (!last.empty()) failure->message += "; the last error: " + last;
        return failure;
      }
    }
    const std::string why = last_error();
    if ((report_.error && report_.error->permanent) || ended_for_good())
      return Problem{"TrainerFailed", why.empty() ? "the trainer refused its input" : why};
    if (status().failed > training_.spec.backoff_limit)
      return Problem{"BackoffLimitExceeded", attempts_text(status().failed) + " failed" +
                                                 (why.empty() ? "" : "; the last error: " + why)};
    const std::int64_t limit = training_.spec.deadline_seconds();
    if (const auto start = meta::parse_time(status().start_time);
        limit > 0 && start.ok() && !training_.spec.suspend) {
      if (wall_ >= *start + seconds(limit))
        return Problem{"DeadlineExceeded", "the run did not end within " + text_of(limit) +
                                               " seconds, its activeDeadline"};
      recheck(std::chrono::duration_cast<Duration>(*start + seconds(limit) - wall_));
    }
    return {};
  }

  // ---- the running pod

  void run() {
    const api::Pod* pod = plan_.pod.get();
    if (status().phase.empty()) status().phase = TrainingModelStatus::kPending;
    if (pod != nullptr && lost_) {
      erase("ResultReceived");
      return set("Running", {kUnknown, lost_->reason, lost_->message});
    }
    if (pod != nullptr && plan_.problem && plan_.problem->reason == "NodeNotFound") {
      erase("ResultReceived");
      return set("Running", no(*plan_.problem));
    }
    if (pod == nullptr || pod->metadata.deleting()) {
      erase("ResultReceived");
      const bool fetches = plan_.problem && plan_.problem->reason == "WaitingForNode";
      status().phase = fetches ? TrainingModelStatus::kFetching : TrainingModelStatus::kPending;
      const bool starts_job = plan_.is_job && world_.job == nullptr;
      Problem why = plan_.problem.value_or(Problem{
          "PodPending", starts_job ? "the Job is being created" : "the pod is being created"});
      if (fetches) {
        if (auto download = download_problem()) why = std::move(*download);
      }
      return set("Running", no(std::move(why)));
    }
    // The agent in the pod of a Job ends after the run.
    if (pod->status.phase == "Succeeded" || (plan_.is_job && trainer_succeeded(*pod)))
      return await_result();
    erase("ResultReceived");
    auto problem = hosting::pod_problem(*pod);
    if (plan_.is_job && !problem && installs(*pod)) {
      status().phase = TrainingModelStatus::kFetching;
      return set("Running",
                 no(download_problem().value_or(
                     Problem{"WaitingForFiles", "the agent of the Job fetches model and data"})));
    }
    if (pod->status.phase == "Running" && !problem) {
      status().phase =
          report_.phase.empty() ? std::string(TrainingModelStatus::kTraining) : report_.phase;
      return set("Running", {kTrue, "Running",
                             "attempt " + text_of(status().attempts) +
                                 (plan_.is_job ? " runs in pod " + pod->metadata.name
                                               : " runs on node " + plan_.node)});
    }
    status().phase = TrainingModelStatus::kPending;
    if (!problem)
      return set("Running",
                 no(plan_.problem.value_or(Problem{"PodPending", "the pod has not started yet"})));
    if (status().failed > 0) {
      const std::string why = last_error();
      problem->message = (why.empty() ? problem->message : why) + "; " +
                         attempts_text(status().failed) + " failed; backoffLimit is " +
                         text_of(training_.spec.backoff_limit);
    }
    set("Running", no(std::move(*problem)));
  }

  void await_result() {
    status().phase = TrainingModelStatus::kUploading;
    const std::string what = "the pod has ended, and node " + plan_.node +
                             " has not reported results/final of the worker API";
    if (await("ResultReceived", "AwaitingResult", what)) return fail({"ResultMissing", what});
    set("Running", no("AwaitingResult", what));
  }

  /// The agent's reason for missing files.
  std::optional<Problem> download_problem() const {
    if (auto problem = download_problem(out_.status.base, kWorkerName)) return problem;
    if (auto problem = download_problem(out_.status.data, kDataName)) return problem;
    if (auto problem = download_problem(out_.status.evaluation_data, kEvaluationName))
      return problem;
    return download_problem(out_.status.scripts, kScriptsName);
  }
  std::optional<Problem> download_problem(const std::optional<api::TrainingBase>& files,
                                          const char* name) const {
    if (agent_ == nullptr || !files) return {};
    const api::EdgeModelReport* model =
        agent_->status.find_model(training_.metadata.key().str() + "." + name);
    const api::EdgeVersionReport* version =
        model == nullptr ? nullptr : model->find_version(files->archive.version);
    if (version == nullptr || version->state != api::EdgeVersionReport::kFailed ||
        version->reason.empty())
      return {};
    return Problem{codec::clipped(version->reason, 128), codec::clipped(version->message, 4096)};
  }

  const TrainingModel& training_;
  const TrainingPlan& plan_;
  const TrainingWorld& world_;
  const hosting::Options& options_;
  const WallTime wall_;
  const std::string now_;
  workers::EdgeNodePtr agent_;
  std::optional<Problem> lost_;
  WorkerReport report_;
  TrainingObservation out_;
  runs::ConditionWriter conditions_;
};

}  // namespace

TrainingObservation observe(const TrainingModel& training, const TrainingPlan& plan,
                            const TrainingWorld& world, const hosting::Options& options,
                            WallTime now) {
  return Observer(training, plan, world, options, now).make();
}

}  // namespace varda::controllers::trainingmodel
